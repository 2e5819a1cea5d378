// The part of ATen that csrc/torch uses, on LibTorch's stable ABI: the same sources then serve the library that is
// compiled for one torch (fedasd_fast._C) and the one for every torch since 2.10 (fedasd_fast._stable).  What is not
// here does not compile there.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <initializer_list>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace fedasd::stable {

// Only the words of an exception pass through torch's dispatcher, which makes it a RuntimeError: the name in front
// says what it was meant to be (fedasd_fast/kernels/stable.py).
template <class... Words>
[[noreturn]] void fail(const char* type, const Words&... words) {
  std::ostringstream message;
  message << type;
  (message << ... << words);
  throw std::runtime_error(message.str());
}
inline void check(AOTITorchError error) {
  if (error != TORCH_SUCCESS) fail("", "a call of torch's C interface failed");
}

}  // namespace fedasd::stable

#define TORCH_CHECK(condition, ...) \
  if (!(condition)) ::fedasd::stable::fail("", __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) \
  if (!(condition)) ::fedasd::stable::fail("ValueError: ", __VA_ARGS__)

namespace at {

using torch::headeronly::MemoryFormat;
using torch::headeronly::ScalarType;
constexpr ScalarType kFloat = ScalarType::Float, kDouble = ScalarType::Double, kHalf = ScalarType::Half,
                     kBFloat16 = ScalarType::BFloat16, kLong = ScalarType::Long, kInt = ScalarType::Int;

template <class T>
struct ArrayRef : torch::headeronly::HeaderOnlyArrayRef<T> {
  using Base = torch::headeronly::HeaderOnlyArrayRef<T>;
  using Base::Base;
  ArrayRef(Base base) : Base(base) {}
  ArrayRef(const std::vector<T>& values) : Base(values) {}
};
using IntArrayRef = ArrayRef<int64_t>;

template <class T>
std::ostream& operator<<(std::ostream& out, const ArrayRef<T>& values) {
  const char* before = "";
  out << '[';
  for (const T& value : values) {
    out << before << value;
    before = ", ";
  }
  return out << ']';
}

// The shapes that the ops expect have three numbers at most.
class DimVector {
 public:
  DimVector() = default;
  template <class Iterator>
  DimVector(Iterator first, Iterator last) {
    append(first, last);
  }
  void push_back(int64_t size) {
    TORCH_CHECK(length_ < 4, "a shape of more than four dimensions");
    sizes_[length_++] = size;
  }
  template <class Iterator>
  void append(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  operator IntArrayRef() const { return IntArrayRef(sizes_, length_); }

 private:
  int64_t sizes_[4] = {};
  size_t length_ = 0;
};

struct Device : torch::stable::Device {
  Device(torch::stable::Device device) : torch::stable::Device(device) {}
};
inline std::ostream& operator<<(std::ostream& out, const Device& device) {
  if (device.is_cpu()) return out << "cpu";
  if (device.is_cuda()) out << "cuda";
  else if (device.type() == torch::headeronly::DeviceType::Meta) out << "meta";
  else out << "device type " << int(device.type());
  return device.has_index() ? out << ':' << int(device.index()) : out;
}

// Of contiguous tensors on the CPU, which are all that are made here.
class TensorOptions {
 public:
  explicit TensorOptions(ScalarType type) : type_(type) {}
  TensorOptions dtype(ScalarType type) const { return TensorOptions(type); }
  TensorOptions memory_format(MemoryFormat) const { return *this; }
  ScalarType scalar_type() const { return type_; }

 private:
  ScalarType type_;
};

// Sizes and strides are asked for once: each question is a call into torch.
class Tensor {
 public:
  Tensor() = default;
  Tensor(torch::stable::Tensor tensor)
      : tensor_(std::move(tensor)), sizes_(tensor_->sizes()), strides_(tensor_->strides()),
        type_(tensor_->scalar_type()) {}

  const torch::stable::Tensor& stable() const { return *tensor_; }
  ScalarType scalar_type() const { return type_; }
  bool is_floating_point() const {
    switch (type_) {
      case ScalarType::Float:
      case ScalarType::Double:
      case ScalarType::Half:
      case ScalarType::BFloat16:
      case ScalarType::Float8_e5m2:
      case ScalarType::Float8_e4m3fn:
      case ScalarType::Float8_e5m2fnuz:
      case ScalarType::Float8_e4m3fnuz: return true;
      default: return false;
    }
  }
  int64_t dim() const { return int64_t(sizes_.size()); }
  IntArrayRef sizes() const { return sizes_; }
  IntArrayRef strides() const { return strides_; }
  int64_t size(int64_t d) const { return sizes_.at(place(d)); }
  int64_t stride(int64_t d) const { return strides_.at(place(d)); }
  int64_t element_size() const { return int64_t(tensor_->element_size()); }
  int64_t itemsize() const { return element_size(); }
  int64_t storage_offset() const { return tensor_->storage_offset(); }
  bool is_contiguous() const { return tensor_->is_contiguous(); }
  Device device() const { return tensor_->device(); }
  TensorOptions options() const { return TensorOptions(type_); }

  const void* const_data_ptr() const { return tensor_->const_data_ptr(); }
  void* mutable_data_ptr() const { return tensor_->mutable_data_ptr(); }
  template <class T>
  const T* const_data_ptr() const {
    return tensor_->const_data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return tensor_->mutable_data_ptr<T>();
  }

  struct Storage {
    size_t bytes;
    size_t nbytes() const { return bytes; }
  };
  Storage storage() const {
    int64_t bytes = 0;
    fedasd::stable::check(aoti_torch_get_storage_size(tensor_->get(), &bytes));
    return {size_t(bytes)};
  }

  Tensor to(ScalarType type) const { return type == type_ ? *this : Tensor(torch::stable::to(*tensor_, type)); }

 private:
  size_t place(int64_t d) const { return size_t(d < 0 ? d + dim() : d); }
  std::optional<torch::stable::Tensor> tensor_;
  IntArrayRef sizes_, strides_;
  ScalarType type_ = ScalarType::Undefined;
};

inline Tensor empty(IntArrayRef sizes, const TensorOptions& options) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  const int32_t type = torch::stable::detail::to<int32_t>(torch::stable::detail::from(options.scalar_type()));
  AtenTensorHandle made = nullptr;
  fedasd::stable::check(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), strides.data(), type,
                                                 aoti_torch_device_type_cpu(), -1, &made));
  return torch::stable::Tensor(made);
}
inline Tensor empty(std::initializer_list<int64_t> sizes, const TensorOptions& options) {
  return empty(IntArrayRef(sizes.begin(), sizes.size()), options);
}
inline Tensor empty_like(const Tensor& t) { return empty(t.sizes(), t.options()); }

namespace detail {

inline size_t computeStorageNbytes(IntArrayRef sizes, IntArrayRef strides, size_t itemsize, size_t offset) {
  size_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    const size_t steps = size_t(sizes[i] - 1);
    size_t distance = 0;
    TORCH_CHECK(
        !__builtin_mul_overflow(steps, size_t(strides[i]), &distance) && !__builtin_add_overflow(last, distance, &last),
        "Storage size calculation overflowed with sizes=", sizes, " and strides=", strides);
  }
  size_t bytes = 0;
  TORCH_CHECK(!__builtin_add_overflow(last, size_t(1), &last) && !__builtin_mul_overflow(last, itemsize, &bytes),
              "Storage size calculation overflowed with sizes=", sizes, " and strides=", strides);
  return bytes;
}

}  // namespace detail

inline int get_num_threads() {
  uint32_t threads = 1;
  fedasd::stable::check(torch_get_num_threads(&threads));
  return int(threads);
}
// The first thread of a region cannot be told from one outside; torch's loop runs a loop inside it in one piece.
inline bool in_parallel_region() {
  uint32_t thread = 0;
  fedasd::stable::check(torch_get_thread_idx(&thread));
  return thread != 0;
}

}  // namespace at
