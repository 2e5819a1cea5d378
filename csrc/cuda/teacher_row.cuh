// One row of a teacher cache: its probabilities at tau, or their logarithms, and what else is kept of it.
#pragma once

#include "elements.cuh"
#include "kernels.cuh"
#include "softmax.cuh"

namespace fedasd::cuda {

template <class T>
struct CachedRow {
  Softmax<T> softmax;
  double constant;  // sum s log s; 0 where the row is logarithms
};

// The team's student is the teacher's row here; writes it to `out` as `rows` wants it.
template <class Team, class T = typename Team::T>
__device__ __forceinline__ CachedRow<T> cached_row(Team& team, void* out, const CacheRows& rows, const Scales<T>& k) {
  const Softmax<T> s = team.template student_softmax<SoftmaxSums::two_and_moment>(k.at_tau, k.at_tau_h);
  const T inverse = 1 / s.sum, log_sum = log_e(s.sum);
  T mean = 0;
  team.map_student(out, rows.type, -1, T(0), [&](T t) {
    const T shifted = t - s.shift;
    if (rows.logarithms) return shifted * k.inv_tau - log_sum;
    // The sum uses the row as it is stored, so that a student equal to the teacher has divergence 0 (up
    // to rounding of the sums) in every storage type.
    const T stored = rounded_to(rows.type, exp_2(shifted * k.at_tau) * inverse);
    mean += product_or_zero(stored, shifted * k.inv_tau);
    return stored;
  });
  team.store(out, rows.type);
  mean = team.sum(mean);
  return {s, rows.logarithms ? 0 : double(mean - log_sum)};
}

}  // namespace fedasd::cuda
