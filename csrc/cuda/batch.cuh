// Labels, cache rows and normalised weights (alpha) of a client's batch.
//
// Reading checks the values.  What the CPU refuses with an exception is a device-side assert here; should a build have
// no asserts, the row counts as ignored: nothing is ever read or written out of bounds.
#pragma once

#include <type_traits>

#include "../asd/formulas.h"
#include "elements.cuh"
#include "kernels.cuh"
#include "reduce.cuh"

namespace fedasd::cuda {

// -1: an ignored row.
__device__ __forceinline__ int read_label(const Integers& targets, int64_t client, int row, int64_t classes,
                                          int64_t ignore_index) {
  const int64_t label = targets.at(client, row);
  const bool target_is_a_class = label >= 0 && label < classes;
  if (label == ignore_index) return -1;
  FEDASD_DEVICE_ASSERT(target_is_a_class);
  return target_is_a_class ? int(label) : -1;
}

template <class T>
__device__ __forceinline__ T read_log_proportion(const Numbers& label_prior, int64_t client, int label) {
  const T proportion = T(label_prior.at(client, label));
  FEDASD_DEVICE_ASSERT(proportion > 0 && proportion < kInfinity<T> &&
                       "the label_prior of a label that occurs is positive");
  return log_e(proportion);
}

template <class L>
__device__ __forceinline__ L read_log_normalizer(const Numbers& alpha_normalizer, int64_t client) {
  const L normalizer = L(alpha_normalizer.at(client, 0));
  FEDASD_DEVICE_ASSERT(normalizer > 0 && normalizer < kInfinity<L> && "alpha_normalizer is positive and finite");
  return log_e(normalizer);
}

// A row of the batch: its label, and where the teacher has it.
struct BatchRow {
  int label, teacher_row;
};

template <bool cached>
__device__ __forceinline__ BatchRow read_row(const Problem& p, int64_t client, int row) {
  const int label = read_label(p.targets, client, row, p.classes, p.options.ignore_index);
  if (!cached || label < 0) return {label, row};
  const int64_t teacher_row = p.rows.at(client, row);
  const bool row_is_in_the_cache = teacher_row >= 0 && teacher_row < p.cached;
  FEDASD_DEVICE_ASSERT(row_is_in_the_cache);
  if (!row_is_in_the_cache) return {-1, row};
  FEDASD_DEVICE_ASSERT(p.cache_targets.at(client, teacher_row) == label &&
                       "target equals the label the cache was built with");
  return {label, int(teacher_row)};
}

// The entropy is over all classes: put the true class back among them, on the common maximum.
template <class T>
__device__ __forceinline__ void include_true_class(Softmax<T>& s, T own_logit, T scale, T other_scale) {
  s.template raise<SoftmaxSums::two_and_moment>(larger(s.shift, own_logit), scale, other_scale);
  const T own = own_logit - s.shift, e = exp_2(own * other_scale);
  s.other_sum += e;
  s.other_moment += product_or_zero(e, own);
}

// log of the un-normalised weight of a row, from the sums of its teacher.
template <class T>
__device__ __forceinline__ T row_log_weight(Softmax<T> s, const RowView& row, int label, T log_proportion,
                                            const Scales<T>& k, bool not_true) {
  if (not_true) include_true_class(s, element<T>(row, label), k.at_tau, k.at_tau_h);
  return log_weight(entropy(log_e(s.other_sum), s.other_sum, s.other_moment, k.tau_h), log_proportion, k.entropy_power,
                    k.prior_power);
}

// alpha: every block sums the weights of all its client's rows for itself, in the same order, instead of waiting for
// another block to do it.

// Cached log weights are double and are subtracted as such; a raw teacher's were computed in T.
template <class T, bool cached>
using LogWeight = std::conditional_t<cached, double, T>;

template <class T, bool cached>
__device__ __forceinline__ LogWeight<T, cached> read_log_weight(const Parameters<T>& p, int64_t client, int row,
                                                                const BatchRow& r) {
  if (!p.problem.options.adaptive) return 0;
  if constexpr (cached) return p.problem.cache_log_weight.at(client, r.teacher_row);
  else return p.log_weight[client * p.problem.batch + row];
}

template <class T, bool cached>
struct Weights {
  using L = LogWeight<T, cached>;
  struct Shared;
  L top;
  T inverse_sum, valid;

  __device__ __forceinline__ T alpha(L log_weight) const { return exp_of(log_weight - top) * inverse_sum; }

  // Every thread of the block calls it.  The result lies in shared memory, to leave more registers for rows.
  static __device__ __forceinline__ const Weights& of_client(const Parameters<T>& p, int64_t client, Shared& shared) {
    // One pass: every thread keeps its sum over its own running maximum.  exp(-inf) = 0 does the right thing for
    // the first row, and for threads without any.
    L own = -kInfinity<L>;
    T sums[2] = {0, 0};
    for (int row = int(threadIdx.x); row < int(p.problem.batch); row += int(blockDim.x)) {
      const BatchRow r = read_row<cached>(p.problem, client, row);
      if (r.label < 0) continue;
      const L w = read_log_weight<T, cached>(p, client, row, r);
      if (w > own) {
        sums[0] *= exp_of(own - w);
        own = w;
      }
      sums[0] += exp_of(w - own);
      sums[1] += 1;  // exact up to 2^24 rows
    }
    L top[1] = {own};
    block_reduce(top, shared.top, -kInfinity<L>, Larger{});
    if (top[0] == -kInfinity<L>) top[0] = 0;  // no valid row
    sums[0] *= exp_of(own - top[0]);
    block_reduce(sums, shared.sums, T(0), Add{});
    if (threadIdx.x == 0) {
      const Numbers& normalizer = p.problem.alpha_normalizer;  // given: alpha does not depend on the batch's own sum
      shared.result.top = normalizer.data ? read_log_normalizer<L>(normalizer, client) : top[0];
      shared.result.inverse_sum = 1 / (normalizer.data ? sums[1] : sums[0]);
      shared.result.valid = sums[1];
    }
    // Hazard (read after write): the other threads read what thread 0 has written.
    __syncthreads();
    return shared.result;
  }

 private:
  static __device__ __forceinline__ T exp_of(L x) { return exp_2(T(x) * T(kLog2E)); }
};

template <class T, bool cached>
struct Weights<T, cached>::Shared {
  BlockScratch<L, 1> top;
  BlockScratch<T, 2> sums;
  Weights result;
};

}  // namespace fedasd::cuda
