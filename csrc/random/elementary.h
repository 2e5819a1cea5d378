// Logarithm, exponential and normal deviates from additions, multiplications, divisions and square roots alone.
//
// These are rounded in the same way everywhere, so results are the same bits for every compiler, instruction set and
// library of mathematics, and for the numpy twin (common/elementary.py).  A fused multiply-add would break that: the
// functions are compiled for targets that have none, or with contraction switched off.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "philox.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__) && (!defined(__x86_64__) || defined(__FMA__))
#pragma GCC optimize("fp-contract=off")
#endif

namespace fedasd::random {

template <class To, class From>
[[gnu::always_inline]] inline To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// log x for normal positive x: with x = 2^e m and s = (m - 1) / (m + 1), log m = 2 atanh s.
[[gnu::always_inline]] inline double logarithm(double x) {
  const auto bits = bits_of<int64_t>(x);
  int64_t exponent = (bits >> 52) - 1023;
  double m = bits_of<double>((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);  // [1, 2)
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double series = 0.0;
  for (int odd = 23; odd >= 1; odd -= 2) series = series * z + 1.0 / odd;
  return 2.0 * s * series + double(exponent) * 0.6931471805599453;
}

// exp x for x <= 0; 0 below -700.
[[gnu::always_inline]] inline double exponential(double x) {
  if (x < -700.0) return 0.0;
  const auto k = int64_t(x * 1.4426950408889634 - 0.5);  // towards zero: to the nearest, for x <= 0
  const double r = (x - double(k) * 0.693147180369123816490) - double(k) * 1.90821492927058770002e-10;
  double series = 1.0;
  for (int n = 14; n >= 1; --n) series = 1.0 + series * r / n;
  return series * bits_of<double>((k + 1023) << 52);
}

// Uniform in (0, 1).
[[gnu::always_inline]] inline double fraction(uint32_t word) { return (double(word) + 0.5) * 0x1p-32; }

// Two independent standard normal deviates of float32 from two words (Box and Muller, 1958); at most 5.8 in size.
[[gnu::always_inline]] inline void normal_pair(uint32_t radius, uint32_t angle, float& first, float& second) {
  const float u = float(int32_t(radius >> 8) + 1) * 0x1p-24f;  // (0, 1]
  const auto bits = bits_of<int32_t>(u);
  const int32_t large = (bits & 0x7FFFFF) > 0x3504F3;  // m > sqrt 2
  const float e = float((bits >> 23) - 127 + large);
  // m in [sqrt 1/2, sqrt 2): the exponent is that of 1, or of 1/2.
  const float m = bits_of<float>((bits & 0x7FFFFF) | (0x3F800000 - (large << 23))) - 1.0f;
  const float z = m * m;
  float log = 7.0376836292e-2f;  // Cephes, logf
  log = log * m + -1.1514610310e-1f;
  log = log * m + 1.1676998740e-1f;
  log = log * m + -1.2420140846e-1f;
  log = log * m + 1.4249322787e-1f;
  log = log * m + -1.6668057665e-1f;
  log = log * m + 2.0000714765e-1f;
  log = log * m + -2.4999993993e-1f;
  log = log * m + 3.3333331174e-1f;
  log = log * m * z;
  log = log + e * -2.12194440e-4f;
  log = log - 0.5f * z;
  log = (m + log) + e * 0.693359375f;
  const float r = std::sqrt(-2.0f * log);

  // The top two bits are the quadrant, the others an angle in [-1/4, 1/4) pi.
  const float t = float(int32_t((angle & 0x3FFFFFFF) >> 6)) * 0x1p-24f - 0.5f;
  const float x = t * 1.57079632679489662f, y = x * x;
  float sine = -1.9515295891e-4f;  // Cephes, sinf and cosf
  sine = sine * y + 8.3321608736e-3f;
  sine = sine * y + -1.6666654611e-1f;
  sine = sine * y * x + x;
  float cosine = 2.443315711809948e-5f;
  cosine = cosine * y + -1.388731625493765e-3f;
  cosine = cosine * y + 4.166664568298827e-2f;
  cosine = cosine * y * y - 0.5f * y + 1.0f;
  // A quarter turn swaps them and changes the sign of one, a half turn that of both; by bits, as branches are no
  // vectors.
  const uint32_t turned = angle & 0x80000000, swapped = 0u - ((angle >> 30) & 1);
  const auto s = bits_of<uint32_t>(sine), c = bits_of<uint32_t>(cosine);
  first = r * bits_of<float>(((c & ~swapped) | (s & swapped)) ^ turned ^ (swapped & 0x80000000));
  second = r * bits_of<float>(((s & ~swapped) | (c & swapped)) ^ turned);
}

}  // namespace fedasd::random
