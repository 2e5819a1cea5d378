// The ops of the client update: argument checks.
#include "update.h"

#include <ATen/ATen.h>

#include <cmath>

#include "memory.h"

namespace fedasd {
namespace {

void check_type(const at::Tensor& w, const char* name) {
  const auto type = w.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kDouble, name, " has dtype ", type,
                    "; expected float32 or float64");
}

// [P] or [K, P] with contiguous rows.
void check_flat(const at::Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.dim() == 1 || t.dim() == 2, name, " has shape ", t.sizes(),
                    "; expected [P], or [K, P] with a client dimension");
  TORCH_CHECK_VALUE(t.size(-1) <= 1 || t.stride(-1) == 1, name, " has strides ", t.strides(),
                    "; expected rows without gaps: call .contiguous()");
  check_memory(t, name);
}

void check_like(const at::Tensor& t, const at::Tensor& w, const char* name, const char* w_name) {
  TORCH_CHECK_VALUE(t.scalar_type() == w.scalar_type(), name, " has dtype ", t.scalar_type(), " but ", w_name, " has ",
                    w.scalar_type(), "; convert one of them");
  TORCH_CHECK_VALUE(t.device() == w.device(), name, " is on ", t.device(), " but ", w_name, " is on ", w.device(),
                    "; move both to one device");
}
void check_shape(const at::Tensor& t, at::IntArrayRef expected, const char* name, const char* meaning) {
  TORCH_CHECK_VALUE(t.sizes() == expected, name, " has shape ", t.sizes(), "; expected ", expected, " (", meaning, ")");
}
void check_array(const at::Tensor& t, const at::Tensor& w, const char* name) {
  check_shape(t, w.sizes(), name, "the shape of w");
  check_flat(t, name);
  check_like(t, w, name, "w");
}

// One number a client.
void check_numbers(const at::Tensor& t, const at::Tensor& w, const char* name) {
  TORCH_CHECK_VALUE(t.scalar_type() == at::kDouble, name, " has dtype ", t.scalar_type(),
                    "; expected float64: call .double()");
  check_shape(t, w.sizes().slice(0, w.dim() - 1), name, "one number a client");
  check_memory(t, name);
  TORCH_CHECK_VALUE(t.is_contiguous(), name, " has strides ", t.strides(), "; call .contiguous()");
  TORCH_CHECK_VALUE(t.device() == w.device(), name, " is on ", t.device(), " but w is on ", w.device(),
                    "; move both to one device");
}

void check_finite(double x, const char* name) {
  TORCH_CHECK_VALUE(std::isfinite(x), name, " = ", x, "; expected a finite number");
}
void check_not_negative(double x, const char* name) {
  TORCH_CHECK_VALUE(x >= 0 && std::isfinite(x), name, " = ", x, "; expected a finite number of 0 or more");
}

// Bytes of a tensor: rows of `length`, `stride` apart.
struct Extent {
  uintptr_t first;
  int64_t length, stride, rows;
  explicit Extent(const at::Tensor& t)
      : first(reinterpret_cast<uintptr_t>(t.const_data_ptr())),
        length(t.dim() ? t.size(-1) * t.element_size() : t.element_size()),
        stride(t.dim() == 2 ? t.stride(0) * t.element_size() : 0), rows(t.dim() == 2 ? t.size(0) : 1) {}
  bool empty() const { return rows == 0 || length == 0; }
  uintptr_t end() const { return first + uintptr_t((rows - 1) * stride + length); }
};

// True for separate memory, and for rows that lie in the gaps between the other's rows, as the two halves of a buffer
// do.
bool disjoint(const at::Tensor& s, const at::Tensor& t) {
  const Extent a(s), b(t);
  if (a.empty() || b.empty() || a.end() <= b.first || b.end() <= a.first) return true;
  if (a.stride != b.stride || a.stride == 0) return false;
  const int64_t behind = int64_t(b.first - a.first) % a.stride, offset = behind < 0 ? behind + a.stride : behind;
  return a.length <= offset && offset + b.length <= a.stride;
}

void check_written(const at::Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.dim() < 2 || t.size(0) <= 1 || t.stride(0) >= t.size(1), name, " has strides ", t.strides(),
                    ": its rows overlap, but each is written; call .clone()");
}
void check_disjoint(const at::Tensor& s, const at::Tensor& t, const char* s_name, const char* t_name) {
  TORCH_CHECK_VALUE(disjoint(s, t), s_name, " shares memory with ", t_name, "; pass ", t_name, ".clone()");
}

DType dtype_of(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? DType::f64 : DType::f32; }
int64_t clients_of(const at::Tensor& t) { return t.dim() == 2 ? t.size(0) : 1; }
int64_t client_stride(const at::Tensor& t) { return t.dim() == 2 ? t.stride(0) : 0; }
Rows rows_of(const at::Tensor& t) { return {t.mutable_data_ptr(), client_stride(t)}; }
ConstRows const_rows_of(const at::Tensor& t) { return {t.const_data_ptr(), client_stride(t)}; }

}  // namespace

LocalStep read_step(FEDASD_STEP_PARAMETERS) {
  check_type(w, "w");
  check_flat(w, "w");
  check_written(w, "w");
  check_array(g, w, "g");
  check_disjoint(w, g, "w", "g");
  LocalStep p;
  p.type = dtype_of(w);
  p.clients = clients_of(w);
  p.size = w.size(-1);
  p.w = rows_of(w);
  p.g = const_rows_of(g);
  if (velocity) {
    check_array(*velocity, w, "velocity");
    check_written(*velocity, "velocity");
    check_disjoint(*velocity, w, "velocity", "w");
    check_disjoint(*velocity, g, "velocity", "g");
    p.velocity = rows_of(*velocity);
  }
  TORCH_CHECK_VALUE(velocity || momentum == 0, "momentum = ", momentum,
                    " without a velocity; pass zeros like w, and keep them for the next step");
  if (linear) {
    TORCH_CHECK_VALUE(linear->sizes() == w.sizes() || linear->sizes() == w.sizes().slice(w.dim() - 1),
                      "linear has shape ", linear->sizes(), "; expected the shape of w ", w.sizes(),
                      ", or [P] for all clients");
    check_flat(*linear, "linear");
    check_like(*linear, w, "linear", "w");
    check_disjoint(w, *linear, "w", "linear");
    if (velocity) check_disjoint(*velocity, *linear, "velocity", "linear");
    p.linear = const_rows_of(*linear);
  }
  if (decays) {
    check_numbers(*decays, w, "decay");
    p.decay.each = decays->const_data_ptr<double>();
  }
  if (lrs) {
    check_numbers(*lrs, w, "lr");
    p.lr.each = lrs->const_data_ptr<double>();
  }
  if (norms) {
    check_numbers(*norms, w, "norms");
    for (const auto& [other, name] : {std::pair(&w, "w"), {&g, "g"}}) check_disjoint(*norms, *other, "norms", name);
    for (const auto& [other, name] :
         {std::pair(&velocity, "velocity"), {&linear, "linear"}, {&decays, "decay"}, {&lrs, "lr"}})
      if (*other) check_disjoint(*norms, **other, "norms", name);
    p.norms = norms->mutable_data_ptr<double>();
  }
  check_finite(quadratic, "quadratic");
  check_finite(decay, "decay");
  check_not_negative(lr, "lr");
  check_not_negative(momentum, "momentum");
  TORCH_CHECK_VALUE(!clip_norm || (*clip_norm > 0 && std::isfinite(*clip_norm)), "clip_norm = ", *clip_norm,
                    "; expected a positive finite number, or None");
  p.quadratic = quadratic;
  p.momentum = momentum;
  p.clip = clip_norm.value_or(0);
  p.decay.all = decay;
  p.lr.all = lr;
  return p;
}

Ascent read_ascent(FEDASD_ASCEND_PARAMETERS) {
  check_type(w, "w");
  check_flat(w, "w");
  check_written(w, "w");
  check_array(g, w, "g");
  check_array(saved, w, "saved");
  check_written(saved, "saved");
  check_disjoint(w, g, "w", "g");
  check_disjoint(saved, w, "saved", "w");
  check_disjoint(saved, g, "saved", "g");
  check_finite(rho, "rho");
  check_not_negative(epsilon, "epsilon");
  Ascent p;
  p.type = dtype_of(w);
  p.clients = clients_of(w);
  p.size = w.size(-1);
  p.w = rows_of(w);
  p.saved = rows_of(saved);
  p.g = const_rows_of(g);
  p.rho = rho;
  p.epsilon = epsilon;
  return p;
}

void read_accumulation(FEDASD_ACCUMULATE_PARAMETERS, Scaled& out) {
  check_type(values, "values");
  check_flat(values, "values");
  TORCH_CHECK_VALUE(total.scalar_type() == at::kLong, "total has dtype ", total.scalar_type(),
                    "; expected int64, as fixed_point.zeros gives");
  check_shape(total, values.sizes().slice(values.dim() - 1), "total", "[P]");
  check_flat(total, "total");
  TORCH_CHECK_VALUE(total.device() == values.device(), "total is on ", total.device(), " but values is on ",
                    values.device(), "; move both to one device");
  check_disjoint(total, values, "total", "values");
  TORCH_CHECK_VALUE(int64_t(weights.size()) == clients_of(values), weights.size(), " weights for ", clients_of(values),
                    " clients; expected one a client");
  for (double weight : weights) {
    check_finite(weight, "weight");
    out.scales.push_back(weight * kFixedPoint);
  }
  Accumulation& p = out.problem;
  p.type = dtype_of(values);
  p.clients = clients_of(values);
  p.size = values.size(-1);
  p.w = const_rows_of(values);
  p.scales = out.scales.data();
  p.total = total.mutable_data_ptr<int64_t>();
}

}  // namespace fedasd
