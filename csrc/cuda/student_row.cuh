// Loss and gradient of one row, given its weight: the same algorithm for a team of lanes (warp_rows.cuh) and for a
// block as a team (block_rows.cuh).
#pragma once

#include "../asd/formulas.h"
#include "kernels.cuh"
#include "weights.cuh"

namespace fedasd::cuda {

// What is known of a row when its classes are gone through.
template <class T>
struct RowConstants {
  T shift = 0, inverse = 1;
  T centre = 0, mean = 0;        // mean of x in two parts: centre + mean
  T asd = 0;                     // lambda alpha / tau
  T ce_scale = 0, ce_true = 0;   // cross-entropy gradient: ce_scale exp(z') + ce_true [c == y]
  T t_shift = 0, t_inverse = 1;  // s = exp((v - t_shift) t_scale) t_inverse, log s = (v - t_shift) t_inv_tau + const
  T t_scale = T(kLog2E), t_inv_tau = 1;
  static constexpr T kLn2 = T(1 / kLog2E);
};

// What a row needs besides its classes.
template <class T, bool cached>
struct RowNumbers {
  LogWeight<T, cached> log_weight = 0;
  T t_shift = 0, t_sum = 1;  // raw teacher: maximum and sum of its softmax
  double constant = 0;       // cached teacher: sum s log s
  int64_t cache_label = 0;
  T own_logit = 0;  // the student's, of the true class
};

// The student's rows.
template <class Team, bool cached, bool kl, Rows kRows>
struct StudentRow {
  using T = typename Team::T;
  Team& team;
  const Parameters<T>& p;
  const Options& o;
  RowConstants<T> k;

  __device__ __forceinline__ StudentRow(Team& team_, const Parameters<T>& p_)
      : team(team_), p(p_), o(p_.problem.options) {}

  // In units of log 2: exp_2 of it is the exponential.
  __device__ __forceinline__ T student_log2(T z) const { return rounded_product(z - k.shift, p.scales.at_tau); }
  __device__ __forceinline__ T teacher_log2(T v) const { return rounded_product(v - k.t_shift, k.t_scale); }
  __device__ __forceinline__ T student_log(T z) const { return rounded_product(z - k.shift, p.scales.inv_tau); }
  __device__ __forceinline__ T student_probability(T z) const {
    return rounded_product(exp_2(student_log2(z)), k.inverse);
  }
  // `logs`: the teacher's values are logarithms up to a constant, not probabilities.
  // s times the teacher's sum (1 for a cached row).
  template <bool logs>
  __device__ __forceinline__ T teacher_exp(T v) const {
    return logs ? exp_2(teacher_log2(v)) : v;
  }
  template <bool logs>
  __device__ __forceinline__ T teacher_log(T v) const {
    return logs ? rounded_product(v - k.t_shift, k.t_inv_tau) : log_e(v);
  }
  __device__ __forceinline__ T teacher_probability(T e) const { return cached ? e : rounded_product(e, k.t_inverse); }

  // What the row's mean is taken of: log(q/s) up to a constant, or log(q/m); 0 where q is.
  template <bool logs>
  __device__ __forceinline__ T centred(T z, T q, T v) const {
    if (q == 0) return 0;
    if (o.divergence == Divergence::reverse_kl) return student_log(z) - teacher_log<logs>(v) - k.centre;
    return log_e(2 * q / (teacher_probability(teacher_exp<logs>(v)) + q));
  }
  template <bool logs>
  __device__ __forceinline__ T mean_over_classes() {
    T total = 0;
    team.each([&](T z, T v) {
      const T q = student_probability(z);
      total += q * centred<logs>(z, q, v);
    });
    return team.sum(total);
  }

  // The row's part of the client's loss; writes its gradient.
  __device__ __forceinline__ double run(int64_t client, int row, int label, T alpha, T valid,
                                        const RowNumbers<T, cached>& numbers) {
    const Problem& problem = p.problem;
    const DType type = type_of(kRows, problem.student.first.type);
    // Not a function of its own: nvcc 13.0 then takes up to 42 registers more, and fewer warps are resident.
    void* gradient = nullptr;
    if (problem.gradient)
      gradient =
          static_cast<char*>(problem.gradient) + (client * problem.batch + row) * problem.classes * size_of(type);
    if (label < 0) {
      // Stored here: where both ways met, a row would wait for its registers to be cleared.
      team.clear(gradient, type);
      team.store(gradient, type);
      return 0;
    }
    double loss = 0;
    if (!cached || (kRows == Rows::any && problem.teacher_rows == TeacherRows::log_probabilities))
      loss = value_and_gradient<true>(label, alpha, valid, numbers, gradient, type);
    else loss = value_and_gradient<!cached>(label, alpha, valid, numbers, gradient, type);
    team.store(gradient, type);
    return team.leader() ? loss : 0;
  }

 private:
  template <bool logs>
  __device__ __forceinline__ double value_and_gradient(int label, T alpha, T valid,
                                                       const RowNumbers<T, cached>& numbers, void* gradient,
                                                       DType type) {
    const T t_sum = numbers.t_sum;
    Softmax<T> s = team.template student_softmax<SoftmaxSums::two>(p.scales.at_tau, p.scales.at_one);
    k = {};
    k.shift = team.shift_student(s.shift);
    k.inverse = 1 / s.sum;
    k.asd = p.scales.asd_gradient * alpha;
    if (!cached)
      k.t_shift = numbers.t_shift, k.t_inverse = 1 / t_sum, k.t_scale = p.scales.at_tau, k.t_inv_tau = p.scales.inv_tau;
    const double ce = o.ce_weight == 0 ? 0 : cross_entropy(s, numbers.own_logit, valid);

    T d = 0;  // the divergence
    if constexpr (kl) {
      T cross = 0;
      const T q_scale = k.inverse * k.asd, s_scale = k.t_inverse * k.asd;
      team.map(gradient, type, label, k.ce_true, [&](T z, T v) {
        // The sum takes s before it is normalised and rounded.
        const T e = teacher_exp<logs>(v), x = student_log2(z);
        if (e != 0) cross += e * (logs ? teacher_log2(v) - x : -x);  // 0 * -inf counts as nothing
        // weight (q - s), with the weight in both scales; exactly 0 where a raw teacher equals the student.
        const T q = rounded_product(exp_2(x), q_scale);
        return q - (cached ? e * s_scale : rounded_product(e, s_scale)) + ce_gradient(z);
      });
      cross = team.sum(cross) * RowConstants<T>::kLn2;
      // log S_z - log S_t as one logarithm: exactly 0 where the sums are equal.
      if constexpr (cached) d = forward_kl(cross, T(numbers.constant), log_e(s.sum));
      else d = forward_kl(cross / t_sum, T(0), log_e(s.sum / t_sum));
    } else {
      T total = mean_over_classes<logs>();
      if (o.divergence == Divergence::reverse_kl) {
        // x may be as large as the logits while its deviations are small: a second pass, centred on the
        // first, gives a mean whose error is that of the deviations.
        k.centre = total - total == 0 ? total : T(0);  // inf and NaN stay in the sum
        total = mean_over_classes<logs>();
        d = reverse_kl(total + k.centre, T(0), log_e(cached ? s.sum : s.sum / t_sum));
      } else {
        T total_s = 0;
        team.each([&](T z, T v) {
          const T t = teacher_probability(teacher_exp<logs>(v));
          total_s += product_or_zero(t, log_e(2 * t / (t + student_probability(z))));
        });
        d = (total + team.sum(total_s)) / 2;
      }
      k.mean = total;
      team.map(gradient, type, label, k.ce_true, [&](T z, T v) {
        const T q = student_probability(z);
        return centred_gradient(q, centred<logs>(z, q, v), k.mean, k.asd) + ce_gradient(z);
      });
    }
    if (d < 0) d = 0;  // a divergence is not negative; only rounding makes it so
    return (o.asd_weight == 0 ? 0 : o.asd_weight * double(alpha * d)) + ce;
  }

  // Sets the constants of its gradient; returns its part of the loss.
  __device__ __forceinline__ double cross_entropy(Softmax<T>& s, T own_logit, T valid) {
    const T weight = T(o.ce_weight) / valid;
    T scale = 1, own = 0;
    if (kRows == Rows::any && o.not_true) {  // the sums leave the true class out: put it back, on the common maximum
      const T top = larger(s.shift, own_logit);
      scale = exp_2((s.shift - top) * p.scales.at_one);
      own = exp_2((own_logit - top) * p.scales.at_one);
      s.other_sum = s.other_sum * scale + own;
      s.shift = top;
    }
    const T inverse = 1 / s.other_sum;
    k.ce_scale = scale * inverse * weight;
    k.ce_true = (own * inverse - 1) * weight;
    return double(weight * (log_e(s.other_sum) + (s.shift - own_logit)));
  }
  __device__ __forceinline__ T ce_gradient(T z) const {  // 0 without the term: its scale is
    return exp_2((z - k.shift) * p.scales.at_one) * k.ce_scale;
  }
};

}  // namespace fedasd::cuda
