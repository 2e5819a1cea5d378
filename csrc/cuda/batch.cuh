// Labels, cache rows and un-normalised weights of a client's batch.
//
// Reading checks the values.  What the CPU refuses with an exception is a device-side assert here; should a build have
// no asserts, the row counts as ignored: nothing is ever read or written out of bounds.
#pragma once

#include "../asd/formulas.h"
#include "elements.cuh"
#include "kernels.cuh"

namespace fedasd::cuda {

// -1: an ignored row.
__device__ __forceinline__ int checked_label(int64_t label, int64_t classes, int64_t ignore_index) {
  const bool target_is_a_class = label >= 0 && label < classes;
  if (label == ignore_index) return -1;
  FEDASD_DEVICE_ASSERT(target_is_a_class);
  return target_is_a_class ? int(label) : -1;
}

template <class T>
__device__ __forceinline__ T checked_log_proportion(T proportion) {
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

// Label and cache row as they lie in memory.  Reading them and looking at them are two steps, so that other loads can
// be issued in between.
struct BatchEntry {
  int64_t label, teacher_row;
};

template <bool cached>
__device__ __forceinline__ BatchEntry fetch_entry(const Problem& p, int64_t client, int row) {
  BatchEntry entry{p.targets.at(client, row), row};
  if (cached) entry.teacher_row = p.rows.at(client, row);
  return entry;
}

// A row of the batch: its label (-1: ignored), and where the teacher has it.
struct BatchRow {
  int label, teacher_row;
};

template <bool cached>
__device__ __forceinline__ BatchRow checked_row(const Problem& p, const BatchEntry& entry) {
  const int label = checked_label(entry.label, p.classes, p.options.ignore_index);
  if (!cached || label < 0) return {label, int(entry.teacher_row)};
  const bool row_is_in_the_cache = entry.teacher_row >= 0 && entry.teacher_row < p.cached;
  FEDASD_DEVICE_ASSERT(row_is_in_the_cache);
  if (!row_is_in_the_cache) return {-1, 0};
  return {label, int(entry.teacher_row)};
}

// The entropy is over all classes: put the true class back among them, on the common maximum.
template <class T>
__device__ __forceinline__ void include_true_class(Softmax<T>& s, T own_logit, T scale, T other_scale) {
  s.template raise<SoftmaxSums::two_and_moment>(larger(s.shift, own_logit), scale, other_scale);
  const T own = own_logit - s.shift, e = exp_2(own * other_scale);
  s.other_sum += e;
  s.other_moment += product_or_zero(e, own);
}

// log of the un-normalised weight of a row, from the sums of its teacher.  `own_logit` is of the true class.
template <class T>
__device__ __forceinline__ T row_log_weight(Softmax<T> s, T own_logit, T log_proportion, const Scales<T>& k,
                                            bool not_true) {
  if (not_true) include_true_class(s, own_logit, k.at_tau, k.at_tau_h);
  return log_weight(entropy(log_e(s.other_sum), s.other_sum, s.other_moment, k.tau_h), log_proportion, k.entropy_power,
                    k.prior_power);
}

}  // namespace fedasd::cuda
