// __nv_bfloat16 and its conversions, to nearest even, as the GPU does them: NaN becomes 0x7fff.
#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

inline float __bfloat162float(__nv_bfloat16 h) { return __uint_as_float(unsigned(h.bits) << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const unsigned u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<unsigned short>((u + 0x7fffu + (u >> 16 & 1)) >> 16)};  // on overflow the carry gives infinity
}
