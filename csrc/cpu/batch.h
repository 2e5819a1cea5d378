// Arguments of the CPU loss kernels: one client's batch, with scratch memory for the numbers of its rows.
#pragma once

#include <cstdint>

#include "../asd/problem.h"
#include "chain_kernels.h"
#include "update_kernels.h"

namespace fedasd::cpu {

// Per-row numbers of one client's batch, arrays of length `batch`.  Row passes write sums; the
// logarithms of all rows are taken together afterwards, because one vector log serves many rows.
struct RowNumbers {
  int64_t* label;          // -1: ignored row
  int64_t* teacher_row;    // where this row stands in `teacher`
  double* weight;          // log of the label proportion -> log weight -> alpha
  double* teacher_shift;   // max t
  double* teacher_sum;     // sum exp(t'/tau)
  double* entropy_sum;     // sum exp(t'/tau_h)
  double* entropy_moment;  // sum exp(t'/tau_h) t'
  double* constant;        // the part of the divergence that does not depend on the student
  double* student_sum;     // sum exp(z'/tau)
  double* ce_sum;          // sum exp(z')
  double* ce_margin;       // max z - z_y
  double* cross;           // the divergence's sum over classes (formulas.h)
  static constexpr int kArrays = 12;
};

// One client's batch.
struct Client {
  int64_t batch = 0, classes = 0;
  Matrix student, teacher;
  TeacherRows teacher_rows = TeacherRows::logits;
  void* gradient = nullptr;     // contiguous, the student's type; null: value only
  int64_t valid = 0;            // rows that are not ignored
  bool has_normalizer = false;  // alpha is relative to a given mean weight; else to the batch's own
  double log_normalizer = 0;
  bool wide = false;  // compute in double, whatever the student's type
  RowNumbers rows{};
};

// One instruction set's compiled code.  Row ranges may run in any order and on any thread: rows do
// not see each other except through `normalise` and `loss`, which run alone.
struct Kernels {
  const char* name;
  void (*teacher_rows)(const Client&, const Options&, int64_t begin, int64_t end);
  void (*normalise)(const Client&, const Options&);
  void (*student_rows)(const Client&, const Options&, int64_t begin, int64_t end);
  void (*cross_entropy_rows)(const Client&, const Options&, int64_t begin, int64_t end);  // without a teacher
  double (*loss)(const Client&, const Options&);
  void (*cache_rows)(const Client&, const Options&, const CacheRows&, int64_t begin, int64_t end);
  void (*finish_cache)(const Client&, const Options&, const CacheRows&);
  UpdateKernels update;
  ChainKernels<float> chain_f32;
  ChainKernels<double> chain_f64;
};

// The best set this CPU runs, or the one named by FEDASD_CPU_CAPABILITY (avx512, avx2, generic) if the CPU has it.
const Kernels& kernels();
// For tests: selects by name; false where this build or this CPU does not have it.
bool select_kernels(const char* name);

}  // namespace fedasd::cpu
