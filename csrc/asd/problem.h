// Arguments of the loss for every backend: plain pointers, element types and strides.  No torch, no CUDA headers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "host_device.h"
#include "options.h"

namespace fedasd {

enum class DType { f32, f64, bf16, f16 };
FEDASD_HD int64_t size_of(DType type) { return type == DType::f64 ? 8 : type == DType::f32 ? 4 : 2; }

// What the teacher's rows hold.  Logits belong to this batch, the probabilities and their logarithms to a cache.
// Without a teacher the objective is the cross-entropy alone, and asd_weight is 0.
enum class TeacherRows { logits, probabilities, log_probabilities, none };

// [rows, classes]; strides count elements.
struct Matrix {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t row_stride = 0, col_stride = 0;
};

// [clients, rows, classes].
struct Logits {
  Matrix first;  // of client 0
  int64_t client_stride = 0;
  FEDASD_HD Matrix client(int64_t k) const {
    Matrix m = first;
    m.data = static_cast<const char*>(first.data) + k * client_stride * size_of(first.type);
    return m;
  }
};

// [clients, rows] of int32 or int64.
struct Integers {
  const void* data = nullptr;
  bool wide = true;
  int64_t client_stride = 0, row_stride = 0;
  FEDASD_HD int64_t at(int64_t client, int64_t row) const {
    const int64_t i = client * client_stride + row * row_stride;
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// [clients, rows] of float or double.
struct Numbers {
  const void* data = nullptr;
  bool wide = true;
  int64_t client_stride = 0, row_stride = 0;
  FEDASD_HD double at(int64_t client, int64_t row) const {
    const int64_t i = client * client_stride + row * row_stride;
    return wide ? static_cast<const double*>(data)[i] : static_cast<const float*>(data)[i];
  }
};

// Losses, one a client, of float or double.
struct Losses {
  void* data = nullptr;
  bool wide = true;
  FEDASD_HD void set(int64_t client, double loss) const {
    if (wide) static_cast<double*>(data)[client] = loss;
    else static_cast<float*>(data)[client] = float(loss);
  }
};

// Where a cache is written: contiguous rows of `type`.
struct CacheRows {
  void* data = nullptr;
  DType type = DType::f32;
  bool logarithms = false;
};

struct Problem {
  Options options;
  int64_t clients = 1, batch = 0, classes = 0;
  Logits student, teacher;
  Integers targets;
  Numbers label_prior;  // [clients, classes]; needed for logits with adaptive weights

  // With a cache: `teacher` holds its rows, and `rows` says which of them this batch is.
  TeacherRows teacher_rows = TeacherRows::logits;
  int64_t cached = 0;
  Integers rows, cache_targets;
  Numbers cache_constant, cache_log_weight;

  // [clients]: alpha = weight / (normalizer x valid rows); without data the mean weight of this batch takes its place,
  // and the weights sum to 1.
  Numbers alpha_normalizer;

  Losses loss;
  void* gradient = nullptr;  // [clients, batch, classes] of the student's type, contiguous, or null
};

struct CacheProblem {
  Options options;
  int64_t clients = 1, samples = 0, classes = 0;
  Logits teacher;
  Integers targets;
  Numbers label_prior;
  CacheRows rows;                // [clients, samples, classes]
  double* constant = nullptr;    // [clients, samples]: sum s log s (0 where the rows are logarithms)
  double* log_weight = nullptr;  // [clients, samples]
};

// The C-1 classes besides the true one are none when C = 1: both softmaxes over all of it agree, and
// the divergence is 0 as it should be.
inline Options effective(Options o, int64_t classes) {
  if (classes == 1) o.not_true = false;
  return o;
}

inline void check_teacher(const Problem& p) {
  if (p.teacher_rows == TeacherRows::none && p.options.asd_weight != 0)
    throw std::invalid_argument("asd_weight = " + std::to_string(p.options.asd_weight) +
                                ", but there is no teacher; pass one, or 0 for the cross-entropy alone");
}

}  // namespace fedasd
