// Turns the tensors of the loss ops into pointers and strides.
#include "problem.h"

#include "checks.h"

namespace fedasd {
namespace {

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::f64;
    case at::kBFloat16: return DType::bf16;
    case at::kHalf: return DType::f16;
    default: return DType::f32;
  }
}

int64_t client_stride(const at::Tensor& t, bool has_clients) { return has_clients ? t.stride(0) : 0; }

Logits logits_of(const at::Tensor& t, bool has_clients) {
  return {{t.const_data_ptr(), dtype_of(t.scalar_type()), t.stride(-2), t.stride(-1)}, client_stride(t, has_clients)};
}
Integers integers_of(const at::Tensor& t, bool has_clients) {
  return {t.const_data_ptr(), t.scalar_type() == at::kLong, client_stride(t, has_clients), t.stride(-1)};
}
Numbers numbers_of(const at::Tensor& t, bool has_clients) {
  return {t.const_data_ptr(), t.scalar_type() == at::kDouble, client_stride(t, has_clients), t.stride(-1)};
}
at::Tensor wide(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat); }

}  // namespace

Objective read_objective(FEDASD_OBJECTIVE_PARAMETERS, bool with_gradient) {
  Objective objective;
  Problem& p = objective.problem;
  p.options = check_options(asd_weight, ce_weight, temperature, entropy_temperature, entropy_power, prior_power,
                            weighting, divergence, not_true, ignore_index);
  const Sizes s = check_objective(FEDASD_OBJECTIVE_ARGUMENTS);
  p.clients = s.clients;
  p.batch = s.batch;
  p.classes = s.classes;
  p.student = logits_of(student_logits, s.has_clients);
  p.targets = integers_of(targets, s.has_clients);
  if (teacher) p.teacher = logits_of(*teacher, s.has_clients);
  if (!teacher) {
    p.teacher_rows = TeacherRows::none;
  } else if (rows) {
    p.teacher_rows = log_rows ? TeacherRows::log_probabilities : TeacherRows::probabilities;
    p.cached = s.cached;
    p.rows = integers_of(*rows, s.has_clients);
    p.cache_targets = integers_of(*cache_targets, s.has_clients);
    p.cache_constant = numbers_of(*cache_constant, s.has_clients);
    p.cache_log_weight = numbers_of(*cache_log_weight, s.has_clients);
  } else if (label_prior) {
    objective.label_prior = wide(*label_prior);
    p.label_prior = numbers_of(objective.label_prior, s.has_clients);
  }
  if (alpha_normalizer)
    p.alpha_normalizer = {alpha_normalizer->const_data_ptr(), true, client_stride(*alpha_normalizer, s.has_clients), 0};
  if (with_gradient) {
    objective.gradient =
        at::empty(student_logits.sizes(), student_logits.options().memory_format(at::MemoryFormat::Contiguous));
    p.gradient = objective.gradient.mutable_data_ptr();
  }
  // The loss keeps the student's precision, but at least float32: a bfloat16 loss has three digits.
  const bool f64 = student_logits.scalar_type() == at::kDouble;
  objective.loss = at::empty(s.has_clients ? at::IntArrayRef{s.clients} : at::IntArrayRef{},
                             student_logits.options().dtype(f64 ? at::kDouble : at::kFloat));
  p.loss = {objective.loss.mutable_data_ptr(), f64};
  return objective;
}

CacheObjective read_cache(FEDASD_CACHE_PARAMETERS) {
  CacheObjective cache;
  CacheProblem& p = cache.problem;
  p.options = check_options(1.0, 1.0, temperature, entropy_temperature, entropy_power, prior_power, "adaptive", "kl",
                            not_true, ignore_index);
  const Sizes s = check_cache(FEDASD_CACHE_ARGUMENTS);
  const auto options = teacher_logits.options().memory_format(at::MemoryFormat::Contiguous);
  cache.label_prior = wide(label_prior);
  cache.rows = at::empty(teacher_logits.sizes(), options.dtype(dtype));
  cache.constant = at::empty(targets.sizes(), options.dtype(at::kDouble));
  cache.log_weight = at::empty_like(cache.constant);
  p.clients = s.clients;
  p.samples = s.batch;
  p.classes = s.classes;
  p.teacher = logits_of(teacher_logits, s.has_clients);
  p.targets = integers_of(targets, s.has_clients);
  p.label_prior = numbers_of(cache.label_prior, s.has_clients);
  p.rows = {cache.rows.mutable_data_ptr(), dtype_of(dtype), log_rows};
  p.constant = cache.constant.mutable_data_ptr<double>();
  p.log_weight = cache.log_weight.mutable_data_ptr<double>();
  return cache;
}

}  // namespace fedasd
