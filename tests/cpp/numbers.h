// Conversions between element types by their definition: slow, exact, and sharing no code with the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "asd/problem.h"

namespace numbers {

using fedasd::DType;

struct HalfFormat {
  int mantissa_bits, exponent_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return uint16_t(((1 << exponent_bits) - 1) << mantissa_bits); }
  bool is_nan(uint16_t bits) const { return (bits & 0x7fff) > infinity(); }

  double decode(uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1), exponent = (bits & 0x7fff) >> mantissa_bits;
    double value;
    if (is_nan(bits)) value = std::numeric_limits<double>::quiet_NaN();
    else if ((bits & 0x7fff) == infinity()) value = std::numeric_limits<double>::infinity();
    else if (exponent == 0) value = std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    else value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
    return bits & 0x8000 ? -value : value;
  }

  // All magnitudes in order, indexed by their bits.  Infinity stands where the next number would be: that is
  // how IEEE 754 decides what overflows.
  std::vector<double> magnitudes() const {
    std::vector<double> all;
    for (int bits = 0; bits < infinity(); ++bits) all.push_back(decode(uint16_t(bits)));
    all.push_back(std::ldexp(1.0, bias() + 1));
    return all;
  }

  // To nearest, ties to the even bits: the distances to both neighbours are exact in double for a float x.
  uint16_t encode(double x, const std::vector<double>& all) const {
    if (std::isnan(x)) return uint16_t(infinity() + 1);
    const double magnitude = std::fabs(x);
    size_t above = size_t(std::lower_bound(all.begin(), all.end(), magnitude) - all.begin());
    if (above == all.size()) above = infinity();
    if (above > 0) {
      const double up = all[above] - magnitude, down = magnitude - all[above - 1];
      if (down < up || (down == up && (above - 1) % 2 == 0)) --above;
    }
    return uint16_t(above | (std::signbit(x) ? 0x8000 : 0));
  }
};

constexpr HalfFormat kF16{10, 5}, kBf16{7, 8};

inline double read(DType type, const void* data, int64_t i) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::f64: return static_cast<const double*>(data)[i];
    case DType::bf16: return kBf16.decode(static_cast<const uint16_t*>(data)[i]);
    case DType::f16: return kF16.decode(static_cast<const uint16_t*>(data)[i]);
  }
  return 0;
}

inline void write(DType type, void* data, int64_t i, double x) {
  static const std::vector<double> f16 = kF16.magnitudes(), bf16 = kBf16.magnitudes();
  switch (type) {
    case DType::f32: static_cast<float*>(data)[i] = float(x); break;
    case DType::f64: static_cast<double*>(data)[i] = x; break;
    case DType::bf16: static_cast<uint16_t*>(data)[i] = kBf16.encode(double(float(x)), bf16); break;
    case DType::f16: static_cast<uint16_t*>(data)[i] = kF16.encode(double(float(x)), f16); break;
  }
}

// Rounding to `type` moves x by at most unit_roundoff |x| + tiny.  Kernels flush exponentials below the
// smallest normal number to 0, which is `tiny` for float and double.
inline double unit_roundoff(DType type) {
  return type == DType::f64 ? 0x1p-53 : type == DType::f32 ? 0x1p-24 : type == DType::bf16 ? 0x1p-8 : 0x1p-11;
}
inline double tiny(DType type) { return type == DType::f64 ? 0x1p-1021 : type == DType::f16 ? 0x1p-25 : 0x1p-125; }
inline const char* name(DType type) {
  return type == DType::f64 ? "f64" : type == DType::f32 ? "f32" : type == DType::bf16 ? "bf16" : "f16";
}

}  // namespace numbers
