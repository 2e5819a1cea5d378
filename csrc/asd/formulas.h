// The formulas of the ASD loss for one row, written once for every backend.
//
//   s = softmax(t / tau)    the teacher (global model)       q = softmax(z / tau)    the student
//   u = softmax(z)                                           h = softmax(t / tau_h)  for the entropy
//
// Kernels see logits shifted by the row maximum, z' = z - max z and t' = t - max t, and sums of
// exponentials of those.  Everything below is in terms of such sums, so no exponential can overflow.
// `V` is a float, a double, or a SIMD vector of them: only + - * / and comparisons are used.
#pragma once

#include "host_device.h"

namespace fedasd {

// H = -sum_c h_c log h_c with h_c = e_c / S, e_c = exp(t'_c / tau_h), S = sum e, P = sum e_c t'_c:
// log h_c = t'_c / tau_h - log S, hence H = log S - P / (tau_h S).
template <class V>
FEDASD_HD V entropy(V log_sum, V sum, V moment, V tau_h) {
  return log_sum - moment / (sum * tau_h);
}

// log of the un-normalised weight: alpha_i is proportional to exp(-b_h H_i) p[y_i]^(-b_p).
template <class V>
FEDASD_HD V log_weight(V entropy, V log_proportion, V entropy_power, V prior_power) {
  return -(entropy * entropy_power) - log_proportion * prior_power;
}

// Divergences from row sums.  log s_c = t'_c/tau - log S_t and log q_c = z'_c/tau - log S_z, and
// both distributions sum to one, so the logarithms leave the sums over classes:
//   KL(s||q) = sum s (t' - z')/tau + log S_z - log S_t
//   KL(q||s) = sum q (z' - t')/tau - log S_z + log S_t
// With a cached row only s and `sum s log s` are kept, and KL(s||q) = [sum s log s] - sum s z'/tau + log S_z.
// In every case: D = cross + constant +- log S_z.
template <class V>
FEDASD_HD V forward_kl(V cross, V constant, V log_sum_z) {
  return cross + constant + log_sum_z;
}
template <class V>
FEDASD_HD V reverse_kl(V cross, V constant, V log_sum_z) {
  return cross + constant - log_sum_z;
}

// Gradients with respect to z_c.  `weight` is lambda alpha_i / tau (js: half of it).
//   KL(s||q)  weight (q - s)
//   KL(q||s)  weight q (log(q/s) - R),  R = sum q log(q/s); row constants cancel in the bracket, so
//             any x with x = log(q/s) + const and X = sum q x will do
//   JS        weight q (log(q/m) - M),  M = sum q log(q/m)
template <class V, class S>
FEDASD_HD V forward_kl_gradient(V q, V s, S weight) {
  return (q - s) * weight;
}
template <class V, class S>
FEDASD_HD V centred_gradient(V q, V x, S mean, S weight) {
  return q * (x - mean) * weight;
}

}  // namespace fedasd
