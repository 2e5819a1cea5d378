// __half and its conversions, to nearest even, as the GPU does them: NaN becomes 0x7fff.
#pragma once

#include "cuda_runtime.h"

struct __half {
  unsigned short bits;
};

inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

inline float __half2float(__half h) {
  const unsigned sign = (h.bits & 0x8000u) << 16, exponent = (h.bits >> 10) & 31u, mantissa = h.bits & 0x3ffu;
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint(float(mantissa) * 0x1p-24f));
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0));
  return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

inline __half __float2half_rn(float x) {
  const unsigned all = __float_as_uint(x), sign = all >> 16 & 0x8000u, u = all & 0x7fffffffu;
  unsigned bits;
  if (u > 0x7f800000u) return {0x7fff};
  if (u >= 0x477ff000u) bits = 0x7c00;  // 65520, halfway to the number after the largest
  // The last bit of 0.5 + |x| stands for 2^-24, as that of a subnormal half: the addition does the rounding.
  else if (u < 0x38800000u) bits = __float_as_uint(__uint_as_float(u) + 0.5f) - __float_as_uint(0.5f);
  else bits = (u - (112u << 23) + 0xfffu + (u >> 13 & 1)) >> 13;
  return {static_cast<unsigned short>(sign | bits)};
}
