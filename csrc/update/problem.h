// Arguments of the client update for every backend: plain pointers and strides.  No torch, no CUDA headers.
//
// Parameters are flat: a client's model is one row of numbers, and K clients are K rows.  Rows are contiguous; the
// stride between clients counts elements.  `type` is f32 or f64, the same for all arrays of a call.
#pragma once

#include <cstdint>

#include "../asd/problem.h"

namespace fedasd {

// [clients, size].
struct Rows {
  void* data = nullptr;
  int64_t client_stride = 0;
  FEDASD_HD void* client(int64_t k, DType type) const {
    return static_cast<char*>(data) + k * client_stride * size_of(type);
  }
};
// The same to read; a stride of 0 gives every client the same row.
struct ConstRows {
  const void* data = nullptr;
  int64_t client_stride = 0;
  FEDASD_HD const void* client(int64_t k, DType type) const {
    return static_cast<const char*>(data) + k * client_stride * size_of(type);
  }
};

// A number for each client, or one for all.
struct PerClient {
  const double* each = nullptr;
  double all = 0;
  FEDASD_HD double at(int64_t k) const { return each ? each[k] : all; }
};

// u = g + quadratic w + linear;  d = min(1, clip / (||u|| + 1e-6)) u + decay w;  velocity <- momentum velocity + d,
// d = velocity;  w <- w - lr d.  A client whose lr is 0 has finished: nothing of it is read or written.
struct LocalStep {
  DType type = DType::f32;
  int64_t clients = 1, size = 0;
  Rows w, velocity;     // velocity: null for none
  ConstRows g, linear;  // linear: null for none
  double quadratic = 0, momentum = 0;
  double clip = 0;  // 0: no clipping
  PerClient decay, lr;
  double* norms = nullptr;  // [clients] ||u||, 0 for clients that have finished; null: not wanted

  FEDASD_HD bool needs_norm() const { return clip != 0 || norms; }
};

// saved <- w;  w <- w + rho g / (||g|| + epsilon).
struct Ascent {
  DType type = DType::f32;
  int64_t clients = 1, size = 0;
  Rows w, saved;
  ConstRows g;
  double rho = 0, epsilon = 0;
};

// total += sum over clients of round(w scale), halves to even.
struct Accumulation {
  DType type = DType::f32;
  int64_t clients = 1, size = 0;
  ConstRows w;
  const double* scales = nullptr;  // [clients] weight * kFixedPoint, in memory of the host
  int64_t* total = nullptr;        // [size]
};

// Sums over clients count in units of 2^-44 (the package's fixed_point.py says why).
constexpr double kFixedPoint = 17592186044416.0;

}  // namespace fedasd
