// Argument checks of the loss ops.
#include "checks.h"

#include <cmath>

#include "memory.h"

namespace fedasd {
namespace {

void check_logits(const at::Tensor& t, const char* name) {
  const auto type = t.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16, name,
                    " has dtype ", type, "; expected float32, float64, float16 or bfloat16");
  check_memory(t, name);
}

void check_integers(const at::Tensor& t, const char* name) {
  const auto type = t.scalar_type();
  TORCH_CHECK_VALUE(type == at::kLong || type == at::kInt, name, " has dtype ", type,
                    "; expected int64 or int32: call .long()");
  check_memory(t, name);
}

void check_shape(const at::Tensor& t, at::IntArrayRef expected, const char* name, const char* meaning) {
  TORCH_CHECK_VALUE(t.sizes() == expected, name, " has shape ", t.sizes(), "; expected ", expected, " (", meaning, ")");
}

void check_device(const at::Tensor& t, const at::Tensor& student, const char* name, const char* student_name) {
  TORCH_CHECK_VALUE(t.device() == student.device(), name, " is on ", t.device(), " but ", student_name, " is on ",
                    student.device(), "; move both to one device");
}

void check_prior(const at::Tensor& prior, const at::Tensor& logits, at::IntArrayRef shape, const char* logits_name) {
  TORCH_CHECK_VALUE(prior.is_floating_point(), "label_prior has dtype ", prior.scalar_type(),
                    "; expected proportions (floating point), as label_prior(targets, num_classes) gives");
  check_shape(prior, shape, "label_prior", "[C], or [K, C] with a client dimension");
  check_device(prior, logits, "label_prior", logits_name);
  check_memory(prior, "label_prior");
}

void check_positive(double x, const char* name) {
  TORCH_CHECK_VALUE(x > 0 && std::isfinite(x), name, " = ", x, "; expected a positive finite number");
}
void check_finite(double x, const char* name) {
  TORCH_CHECK_VALUE(std::isfinite(x), name, " = ", x, "; expected a finite number");
}

Sizes leading_sizes(const at::Tensor& logits, const char* name) {
  TORCH_CHECK_VALUE(logits.dim() == 2 || logits.dim() == 3, name, " has shape ", logits.sizes(),
                    "; expected [B, C], or [K, B, C] with a client dimension");
  const bool has_clients = logits.dim() == 3;
  Sizes s{has_clients ? logits.size(0) : 1, logits.size(-2), logits.size(-1), 0, has_clients};
  TORCH_CHECK_VALUE(s.classes > 0, name, " has shape ", logits.sizes(), "; expected at least one class");
  // An expanded tensor can have any size without any memory.
  int64_t bytes = sizeof(double);
  TORCH_CHECK_VALUE(!__builtin_mul_overflow(bytes, s.clients, &bytes) &&
                        !__builtin_mul_overflow(bytes, s.batch, &bytes) &&
                        !__builtin_mul_overflow(bytes, s.classes, &bytes),
                    name, " has shape ", logits.sizes(), ", too large to compute with; pass fewer rows at a time");
  return s;
}

}  // namespace

Options check_options(double asd_weight, double ce_weight, double temperature, double entropy_temperature,
                      double entropy_power, double prior_power, std::string_view weighting, std::string_view divergence,
                      bool not_true, int64_t ignore_index) {
  check_finite(asd_weight, "asd_weight");
  check_finite(ce_weight, "ce_weight");
  check_positive(temperature, "temperature");
  check_positive(entropy_temperature, "entropy_temperature");
  check_finite(entropy_power, "entropy_power");
  check_finite(prior_power, "prior_power");
  TORCH_CHECK_VALUE(weighting == "adaptive" || weighting == "uniform", "weighting = '", weighting,
                    "'; expected 'adaptive' or 'uniform'");
  TORCH_CHECK_VALUE(divergence == "kl" || divergence == "reverse_kl" || divergence == "js", "divergence = '",
                    divergence, "'; expected 'kl', 'reverse_kl' or 'js'");
  Options o;
  o.temperature = temperature;
  o.entropy_temperature = entropy_temperature;
  o.entropy_power = entropy_power;
  o.prior_power = prior_power;
  o.asd_weight = asd_weight;
  o.ce_weight = ce_weight;
  o.divergence = divergence == "kl" ? Divergence::kl : divergence == "js" ? Divergence::js : Divergence::reverse_kl;
  o.adaptive = weighting == "adaptive";
  o.not_true = not_true;
  o.ignore_index = ignore_index;
  return o;
}

Sizes check_objective(FEDASD_OBJECTIVE_PARAMETERS) {
  (void)log_rows, (void)ce_weight, (void)temperature, (void)entropy_temperature, (void)entropy_power;
  (void)prior_power, (void)divergence, (void)not_true, (void)ignore_index;
  check_logits(student_logits, "student_logits");
  Sizes s = leading_sizes(student_logits, "student_logits");
  const bool cached = rows.has_value();
  auto with_clients = [&](std::initializer_list<int64_t> tail) {
    at::DimVector shape;
    if (s.has_clients) shape.push_back(s.clients);
    shape.append(tail.begin(), tail.end());
    return shape;
  };

  if (teacher) {
    check_logits(*teacher, cached ? "the teacher cache" : "teacher_logits");
    check_device(*teacher, student_logits, "teacher_logits", "student_logits");
  } else {
    TORCH_CHECK_VALUE(asd_weight == 0, "teacher_logits = None, but asd_weight = ", asd_weight,
                      "; pass the teacher's logits or cache[rows], or asd_weight=0 for the cross-entropy alone");
    TORCH_CHECK_VALUE(!cached, "rows is given without a teacher cache; pass cache[rows] of a TeacherCache");
  }
  if (cached) {
    TORCH_CHECK_VALUE(teacher->dim() == student_logits.dim(), "the teacher cache has shape ", teacher->sizes(),
                      " but student_logits ", student_logits.sizes(), "; both need a client dimension, or neither");
    s.cached = teacher->size(-2);
    check_shape(*teacher, with_clients({s.cached, s.classes}), "the teacher cache", "[N, C], or [K, N, C]");
    TORCH_CHECK_VALUE(cache_targets && cache_constant && cache_log_weight,
                      "rows is given without the rest of the cache; pass cache[rows] of a TeacherCache");
    check_integers(*rows, "rows");
    check_integers(*cache_targets, "cache_targets");
    check_shape(*rows, with_clients({s.batch}), "rows", "one cache row for each row of student_logits");
    check_shape(*cache_targets, with_clients({s.cached}), "cache_targets", "[N], or [K, N]");
    for (const auto* t : {&*cache_constant, &*cache_log_weight}) {
      TORCH_CHECK_VALUE(t->scalar_type() == at::kDouble, "the cache's row numbers have dtype ", t->scalar_type(),
                        "; expected float64");
      check_shape(*t, with_clients({s.cached}), "the cache's row numbers", "[N], or [K, N]");
      check_memory(*t, "the cache's row numbers");
    }
    for (const auto* t : {&*rows, &*cache_targets, &*cache_constant, &*cache_log_weight})
      check_device(*t, student_logits, "the teacher cache or its rows", "student_logits");
  } else if (teacher) {
    check_shape(*teacher, student_logits.sizes(), "teacher_logits", "the shape of student_logits");
  }

  check_integers(targets, "targets");
  check_shape(targets, with_clients({s.batch}), "targets", "one label for each row of student_logits");
  check_device(targets, student_logits, "targets", "student_logits");
  if (label_prior) {
    check_prior(*label_prior, student_logits, with_clients({s.classes}), "student_logits");
  } else {
    TORCH_CHECK_VALUE(
        !teacher || cached || weighting == "uniform",
        "label_prior = None, but adaptive weights need the client's label distribution; pass label_prior(targets, "
        "num_classes), a TeacherCache, or weighting='uniform'");
  }
  if (alpha_normalizer) {
    TORCH_CHECK_VALUE(alpha_normalizer->scalar_type() == at::kDouble, "alpha_normalizer has dtype ",
                      alpha_normalizer->scalar_type(), "; expected float64");
    check_shape(*alpha_normalizer, with_clients({}), "alpha_normalizer", "one number, or one for each client");
    check_device(*alpha_normalizer, student_logits, "alpha_normalizer", "student_logits");
    check_memory(*alpha_normalizer, "alpha_normalizer");
  }
  return s;
}

Sizes check_cache(FEDASD_CACHE_PARAMETERS) {
  (void)temperature, (void)entropy_temperature, (void)entropy_power, (void)prior_power, (void)not_true,
      (void)ignore_index;
  (void)log_rows;
  check_logits(teacher_logits, "teacher_logits");
  const Sizes s = leading_sizes(teacher_logits, "teacher_logits");
  check_integers(targets, "targets");
  check_shape(targets, teacher_logits.sizes().slice(0, teacher_logits.dim() - 1), "targets",
              "one label for each row of teacher_logits");
  check_device(targets, teacher_logits, "targets", "teacher_logits");
  at::DimVector prior_shape(teacher_logits.sizes().begin(), teacher_logits.sizes().end() - 2);
  prior_shape.push_back(s.classes);
  check_prior(label_prior, teacher_logits, prior_shape, "teacher_logits");
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16,
                    "dtype = ", dtype, "; expected float32, float64, float16 or bfloat16");
  return s;
}

}  // namespace fedasd
