// The ops on CPU tensors: checks, then csrc/cpu/asd.h on their memory.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "../cpu/asd.h"
#include "checks.h"

namespace fedasd {
namespace {

cpu::DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return cpu::DType::f64;
    case at::kBFloat16: return cpu::DType::bf16;
    case at::kHalf: return cpu::DType::f16;
    default: return cpu::DType::f32;
  }
}

int64_t client_stride(const at::Tensor& t, bool has_clients) { return has_clients ? t.stride(0) : 0; }

cpu::Logits logits_of(const at::Tensor& t, bool has_clients) {
  return {{t.const_data_ptr(), dtype_of(t.scalar_type()), t.stride(-2), t.stride(-1)}, client_stride(t, has_clients)};
}
cpu::Integers integers_of(const at::Tensor& t, bool has_clients) {
  return {t.const_data_ptr(), t.scalar_type() == at::kLong, client_stride(t, has_clients), t.stride(-1)};
}
// The caller keeps `t` alive; half types have been widened.
cpu::Numbers numbers_of(const at::Tensor& t, bool has_clients) {
  return {t.const_data_ptr(), t.scalar_type() == at::kDouble, client_stride(t, has_clients), t.stride(-1)};
}
at::Tensor wide(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat); }

cpu::Parallel parallel() {
  cpu::Parallel p;
  p.threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  p.run = [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) { at::parallel_for(0, n, grain, f); };
  return p;
}

template <class F>
void as_value_error(F f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

// The loss keeps the student's precision, but at least float32: a bfloat16 loss has three digits.
at::Tensor run(FEDASD_OBJECTIVE_PARAMETERS, at::Tensor* gradient) {
  cpu::Problem p;
  p.options = check_options(asd_weight, ce_weight, temperature, entropy_temperature, entropy_power, prior_power, weighting,
                            divergence, not_true, ignore_index);
  const Sizes s = check_objective(FEDASD_OBJECTIVE_ARGUMENTS);
  p.clients = s.clients;
  p.batch = s.batch;
  p.classes = s.classes;
  p.student = logits_of(student_logits, s.has_clients);
  p.teacher = logits_of(teacher, s.has_clients);
  p.targets = integers_of(targets, s.has_clients);
  at::Tensor shares;
  if (rows) {
    p.teacher_rows = log_rows ? cpu::TeacherRows::log_probabilities : cpu::TeacherRows::probabilities;
    p.cached = s.cached;
    p.rows = integers_of(*rows, s.has_clients);
    p.cache_targets = integers_of(*cache_targets, s.has_clients);
    p.cache_constant = numbers_of(*cache_constant, s.has_clients);
    p.cache_log_weight = numbers_of(*cache_log_weight, s.has_clients);
  } else if (label_prior) {
    shares = wide(*label_prior);
    p.label_prior = numbers_of(shares, s.has_clients);
  }
  if (gradient) {
    *gradient = at::empty(student_logits.sizes(), student_logits.options().memory_format(at::MemoryFormat::Contiguous));
    p.gradient = gradient->mutable_data_ptr();
  }
  const bool f64 = student_logits.scalar_type() == at::kDouble;
  at::Tensor loss = at::empty(s.has_clients ? at::IntArrayRef{s.clients} : at::IntArrayRef{},
                              student_logits.options().dtype(f64 ? at::kDouble : at::kFloat));
  at::SmallVector<double, 64> losses(size_t(s.clients), 0.0);
  p.loss = losses.data();
  as_value_error([&] { cpu::loss_and_gradient(p, parallel()); });
  for (int64_t k = 0; k < s.clients; ++k) {
    if (f64) loss.mutable_data_ptr<double>()[k] = losses[size_t(k)];
    else loss.mutable_data_ptr<float>()[k] = float(losses[size_t(k)]);
  }
  return loss;
}

at::Tensor asd_objective(FEDASD_OBJECTIVE_PARAMETERS) { return run(FEDASD_OBJECTIVE_ARGUMENTS, nullptr); }

LossAndGrad asd_loss_and_grad(FEDASD_OBJECTIVE_PARAMETERS) {
  at::Tensor gradient;
  at::Tensor loss = run(FEDASD_OBJECTIVE_ARGUMENTS, &gradient);
  return {std::move(loss), std::move(gradient)};
}

CacheTensors teacher_cache(FEDASD_CACHE_PARAMETERS) {
  cpu::CacheProblem p;
  p.options = check_options(1.0, 1.0, temperature, entropy_temperature, entropy_power, prior_power, "adaptive", "kl", not_true,
                            ignore_index);
  const Sizes s = check_cache(FEDASD_CACHE_ARGUMENTS);
  const at::Tensor shares = wide(label_prior);
  const auto options = teacher_logits.options().memory_format(at::MemoryFormat::Contiguous);
  at::Tensor rows = at::empty(teacher_logits.sizes(), options.dtype(dtype));
  at::Tensor constant = at::empty(targets.sizes(), options.dtype(at::kDouble));
  at::Tensor log_weight = at::empty_like(constant);
  p.clients = s.clients;
  p.samples = s.batch;
  p.classes = s.classes;
  p.teacher = logits_of(teacher_logits, s.has_clients);
  p.targets = integers_of(targets, s.has_clients);
  p.label_prior = numbers_of(shares, s.has_clients);
  p.rows = {rows.mutable_data_ptr(), dtype_of(dtype), log_rows};
  p.constant = constant.mutable_data_ptr<double>();
  p.log_weight = log_weight.mutable_data_ptr<double>();
  as_value_error([&] { cpu::build_cache(p, parallel()); });
  return {std::move(rows), std::move(constant), std::move(log_weight)};
}

}  // namespace

TORCH_LIBRARY_IMPL(fedasd, CPU, m) {
  m.impl("asd_objective", asd_objective);
  m.impl("asd_loss_and_grad", asd_loss_and_grad);
  m.impl("teacher_cache", teacher_cache);
}

}  // namespace fedasd
