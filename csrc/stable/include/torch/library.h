// Registers ops through the stable ABI, with the macros of torch's own library.h.
#pragma once

#include <torch/csrc/stable/library.h>

#include "../../tensor.h"

// What holds an argument of an op while the op runs, and how a result leaves.
namespace torch::stable::detail {

template <>
struct UnboxType<at::Tensor> {
  using type = torch::stable::Tensor;
};
template <>
struct UnboxType<std::optional<at::Tensor>> {
  using type = std::optional<torch::stable::Tensor>;
};
template <class T>
struct UnboxType<at::ArrayRef<T>> {
  using type = std::vector<T>;
};
template <>
struct FromImpl<at::Tensor> {
  static StableIValue call(const at::Tensor& t, uint64_t version, bool is_internal) {
    return FromImpl<torch::stable::Tensor>::call(t.stable(), version, is_internal);
  }
};

}  // namespace torch::stable::detail

#define TORCH_FN(function) TORCH_BOX(&function)
#define TORCH_LIBRARY_FRAGMENT(ns, m) STABLE_TORCH_LIBRARY_FRAGMENT(ns, m)
#define TORCH_LIBRARY_IMPL(ns, key, m) STABLE_TORCH_LIBRARY_IMPL(ns, key, m)
