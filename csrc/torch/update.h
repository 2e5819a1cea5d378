// The ops of the client update: schemas and arguments, and their tensors as pointers and strides.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "../update/problem.h"

// Tensors hold one client [P] or several [K, P]; decays, lrs and norms one number a client, [] or [K].  decays and lrs
// take the place of decay and lr.
#define FEDASD_STEP_SCHEMA                                                                                          \
  "(Tensor(a!) w, Tensor g, Tensor(b!)? velocity, Tensor? linear, Tensor? decays, Tensor? lrs, Tensor(c!)? norms, " \
  "float quadratic, float? clip_norm, float decay, float lr, float momentum) -> ()"
#define FEDASD_STEP_PARAMETERS                                                                      \
  const at::Tensor &w, const at::Tensor &g, const std::optional<at::Tensor>&velocity,               \
      const std::optional<at::Tensor>&linear, const std::optional<at::Tensor>&decays,               \
      const std::optional<at::Tensor>&lrs, const std::optional<at::Tensor>&norms, double quadratic, \
      std::optional<double> clip_norm, double decay, double lr, double momentum
#define FEDASD_STEP_ARGUMENTS w, g, velocity, linear, decays, lrs, norms, quadratic, clip_norm, decay, lr, momentum

#define FEDASD_ASCEND_SCHEMA "(Tensor(a!) w, Tensor g, Tensor(b!) saved, float rho, float epsilon) -> ()"
#define FEDASD_ASCEND_PARAMETERS \
  const at::Tensor &w, const at::Tensor &g, const at::Tensor &saved, double rho, double epsilon
#define FEDASD_ASCEND_ARGUMENTS w, g, saved, rho, epsilon

#define FEDASD_ACCUMULATE_SCHEMA "(Tensor(a!) total, Tensor values, float[] weights) -> ()"
#define FEDASD_ACCUMULATE_PARAMETERS const at::Tensor &total, const at::Tensor &values, at::ArrayRef<double> weights
#define FEDASD_ACCUMULATE_ARGUMENTS total, values, weights

namespace fedasd {

// The registered ops, for op_handle.h.
struct LocalStepOp {
  static constexpr const char* name = "fedasd::local_step_";
  using Signature = void(FEDASD_STEP_PARAMETERS);
};
struct AscendOp {
  static constexpr const char* name = "fedasd::ascend_";
  using Signature = void(FEDASD_ASCEND_PARAMETERS);
};
struct AccumulateOp {
  static constexpr const char* name = "fedasd::accumulate_";
  using Signature = void(FEDASD_ACCUMULATE_PARAMETERS);
};

// Check everything that can be checked without looking at a value in a tensor.
LocalStep read_step(FEDASD_STEP_PARAMETERS);
Ascent read_ascent(FEDASD_ASCEND_PARAMETERS);
// The scales are computed here; the problem points to them.
struct Scaled {
  Accumulation problem;
  std::vector<double> scales;
};
void read_accumulation(FEDASD_ACCUMULATE_PARAMETERS, Scaled& out);

}  // namespace fedasd
