// The ASD objective of a batch of clients on the CPU.  No torch: a C++ program can call it as it is.
#pragma once

#include <cstdint>
#include <functional>

#include "batch.h"

namespace fedasd::cpu {

// [clients, rows] of int32 or int64.
struct Integers {
  const void* data = nullptr;
  bool wide = true;
  int64_t client_stride = 0, row_stride = 0;
  int64_t at(int64_t client, int64_t row) const {
    const int64_t i = client * client_stride + row * row_stride;
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// [clients, rows] of float or double.
struct Numbers {
  const void* data = nullptr;
  bool wide = true;
  int64_t client_stride = 0, row_stride = 0;
  double at(int64_t client, int64_t row) const {
    const int64_t i = client * client_stride + row * row_stride;
    return wide ? static_cast<const double*>(data)[i] : static_cast<const float*>(data)[i];
  }
};

struct Logits {
  Matrix first;  // of client 0
  int64_t client_stride = 0;
  Matrix client(int64_t k) const {
    Matrix m = first;
    m.data = static_cast<const char*>(first.data) + k * client_stride * size_of(first.type);
    return m;
  }
};

// Splits [0, n) into ranges of at least `grain`, runs them, and returns when all are done.
struct Parallel {
  int threads = 1;
  std::function<void(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>&)> run;
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

  double* loss = nullptr;    // [clients]
  void* gradient = nullptr;  // [clients, batch, classes] of the student's type, or null
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

// Both throw std::invalid_argument, naming argument, place, value and remedy, before writing a number
// for the client concerned.
void loss_and_gradient(const Problem&, const Parallel&);
void build_cache(const CacheProblem&, const Parallel&);

}  // namespace fedasd::cpu
