// Labels, shares and cache rows, with the checks that need their values.  What the CPU refuses with an
// exception is a device-side assert here; should a build have no asserts, the row counts as ignored: nothing
// is ever read or written out of bounds.
#pragma once

#include "../asd/formulas.h"
#include "parameters.cuh"

namespace fedasd::cuda {

// -1: an ignored row.
__device__ __forceinline__ int read_label(const Integers& targets, int64_t client, int row, int64_t classes, int64_t ignore_index) {
  const int64_t label = targets.at(client, row);
  const bool target_is_a_class = label >= 0 && label < classes;
  if (label == ignore_index) return -1;
  FEDASD_DEVICE_ASSERT(target_is_a_class);
  return target_is_a_class ? int(label) : -1;
}

template <class T>
__device__ __forceinline__ T read_log_share(const Numbers& label_prior, int64_t client, int label) {
  const T share = T(label_prior.at(client, label));
  FEDASD_DEVICE_ASSERT(share > 0 && share < kInfinity<T> && "the label_prior of a label that occurs is positive");
  return log_e(share);
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
  FEDASD_DEVICE_ASSERT(p.cache_targets.at(client, teacher_row) == label && "target equals the label the cache was built with");
  return {label, int(teacher_row)};
}

}  // namespace fedasd::cuda
