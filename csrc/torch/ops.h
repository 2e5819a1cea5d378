// The loss ops: schemas and arguments, each written once.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <tuple>

#define FEDASD_OBJECTIVE_SCHEMA                                                                            \
  "(Tensor student_logits, Tensor? teacher_logits, Tensor targets, Tensor? label_prior, Tensor? rows, "    \
  "Tensor? cache_targets, Tensor? cache_constant, Tensor? cache_log_weight, Tensor? alpha_normalizer, "    \
  "bool log_rows, "                                                                                        \
  "float asd_weight, float ce_weight, float temperature, float entropy_temperature, float entropy_power, " \
  "float prior_power, str weighting, str divergence, bool not_true, int ignore_index)"

// teacher: logits [.., B, C] of this batch, or, with `rows` [.., B], a cache [.., N, C]; none for the cross-entropy
// alone.  alpha_normalizer [..]: the mean weight that alpha is relative to, in place of this batch's own.
#define FEDASD_OBJECTIVE_PARAMETERS                                                                       \
  const at::Tensor &student_logits, const std::optional<at::Tensor>&teacher, const at::Tensor &targets,   \
      const std::optional<at::Tensor>&label_prior, const std::optional<at::Tensor>&rows,                  \
      const std::optional<at::Tensor>&cache_targets, const std::optional<at::Tensor>&cache_constant,      \
      const std::optional<at::Tensor>&cache_log_weight, const std::optional<at::Tensor>&alpha_normalizer, \
      bool log_rows, double asd_weight, double ce_weight, double temperature, double entropy_temperature, \
      double entropy_power, double prior_power, std::string_view weighting, std::string_view divergence,  \
      bool not_true, int64_t ignore_index

#define FEDASD_OBJECTIVE_ARGUMENTS                                                                                     \
  student_logits, teacher, targets, label_prior, rows, cache_targets, cache_constant, cache_log_weight,                \
      alpha_normalizer, log_rows, asd_weight, ce_weight, temperature, entropy_temperature, entropy_power, prior_power, \
      weighting, divergence, not_true, ignore_index

#define FEDASD_CACHE_SCHEMA                                                                                    \
  "(Tensor teacher_logits, Tensor targets, Tensor label_prior, float temperature, float entropy_temperature, " \
  "float entropy_power, float prior_power, bool not_true, int ignore_index, ScalarType dtype, bool log_rows)"

#define FEDASD_CACHE_PARAMETERS                                                                                   \
  const at::Tensor &teacher_logits, const at::Tensor &targets, const at::Tensor &label_prior, double temperature, \
      double entropy_temperature, double entropy_power, double prior_power, bool not_true, int64_t ignore_index,  \
      at::ScalarType dtype, bool log_rows

#define FEDASD_CACHE_ARGUMENTS                                                                                  \
  teacher_logits, targets, label_prior, temperature, entropy_temperature, entropy_power, prior_power, not_true, \
      ignore_index, dtype, log_rows

namespace fedasd {
using LossAndGrad = std::tuple<at::Tensor, at::Tensor>;
using CacheTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // rows, constant, log_weight

// The registered ops, for op_handle.h.
struct AsdObjectiveOp {
  static constexpr const char* name = "fedasd::asd_objective";
  using Signature = at::Tensor(FEDASD_OBJECTIVE_PARAMETERS);
};
struct AsdLossAndGradOp {
  static constexpr const char* name = "fedasd::asd_loss_and_grad";
  using Signature = LossAndGrad(FEDASD_OBJECTIVE_PARAMETERS);
};
struct TeacherCacheOp {
  static constexpr const char* name = "fedasd::teacher_cache";
  using Signature = CacheTensors(FEDASD_CACHE_PARAMETERS);
};

}  // namespace fedasd
