// exp, log and the half types of csrc/cpu against long double and against exact, slow conversions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "check.h"
#include "numbers.h"
#include "simd_functions.h"

namespace fedasd::cpu {
namespace generic {
extern const Math math;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Math math;
}
namespace avx512 {
extern const Math math;
}
#endif
}  // namespace fedasd::cpu

namespace {

using fedasd::cpu::Math;

const Math& active() {
  const Math* all[] = {
      &fedasd::cpu::generic::math,
#if defined(__x86_64__)
      &fedasd::cpu::avx2::math,
      &fedasd::cpu::avx512::math,
#endif
  };
  for (const Math* math : all)
    if (std::strcmp(math->name, fedasd::cpu::kernels().name) == 0) return *math;
  return *all[0];
}

// A much wider type; long double is 64 bits of mantissa or more wherever this runs.
template <class T>
using Exact = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <class T>
double ulps(T got, Exact<T> exact) {
  const int exponent = std::max(std::ilogb(exact), std::numeric_limits<T>::min_exponent - 1);
  return double(std::fabs(Exact<T>(got) - exact) /
                std::ldexp(Exact<T>(1), exponent + 1 - std::numeric_limits<T>::digits));
}

template <class T>
T from_bits(uint64_t bits) {
  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t> narrow = decltype(narrow)(bits);
  T value;
  std::memcpy(&value, &narrow, sizeof value);
  return value;
}

// Signalling and quiet, of both signs, with payloads that look like exponents.
template <class T>
std::vector<T> nans() {
  const uint64_t infinity = sizeof(T) == 4 ? 0x7f800000u : 0x7ff0000000000000u, sign = uint64_t(1)
                                                                                       << (8 * sizeof(T) - 1);
  std::vector<T> all = {std::numeric_limits<T>::quiet_NaN()};
  for (uint64_t payload : {0x1u, 0x7fu, 0x81u, 0x3ffu, 0x100000u, 0x400000u, 0x7fffffu})
    for (uint64_t bits : {infinity | payload, sign | infinity | payload}) all.push_back(from_bits<T>(bits));
  return all;
}

// From `lowest`, about log(min), up to 0.  The kernels compute 2^(x log2 e), and rounding the exponent costs |x|
// roundoffs: next to a softmax's largest term, 1, that is nothing.
template <class T>
void check_exp(void (*exp)(T*, int64_t), T lowest) {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(1);
  std::vector<T> x;
  for (int i = 0; i < 200000; ++i) x.push_back(T(std::uniform_real_distribution<double>(double(lowest), 0)(random)));
  for (int i = 0; i < 50000; ++i) x.push_back(T(-std::exp2(std::uniform_real_distribution<double>(-60, 3)(random))));
  for (T edge : {lowest, T(0), -T(0), -Limits::min(), -Limits::denorm_min()}) x.push_back(edge);
  std::vector<T> y = x;
  exp(y.data(), int64_t(y.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps<T>(y[i], std::exp(Exact<T>(x[i]))), bound = 1.25 + 1.25 * std::fabs(double(x[i]));
    worst = std::max(worst, error / bound);
    CHECK(error <= bound, "exp", x[i], "=", y[i], "off by", error, "ulp");
  }
  std::cout << "exp" << 8 * sizeof(T) << ": " << worst << " of its bound\n";

  std::vector<T> zero = {-Limits::infinity(), Limits::lowest(), lowest * 2, lowest * 100};
  exp(zero.data(), int64_t(zero.size()));
  for (T value : zero) CHECK(value == 0 && !std::signbit(value), "exp of a very negative number", value);
  std::vector<T> denormal = {lowest * T(1.003), lowest * T(1.01), lowest * T(1.04)};  // may be flushed to 0
  exp(denormal.data(), int64_t(denormal.size()));
  for (T value : denormal) CHECK(value >= 0 && value < Limits::min(), "exp below the normal numbers", value);
  std::vector<T> one = {T(0), -T(0), -Limits::denorm_min()};
  exp(one.data(), int64_t(one.size()));
  for (T value : one) CHECK(value == 1, "exp of zero", value);
  std::vector<T> nan = nans<T>();
  exp(nan.data(), int64_t(nan.size()));
  for (size_t i = 0; i < nan.size(); ++i) CHECK(std::isnan(nan[i]), "exp(NaN)", i, nan[i]);
}

template <class T>
void check_log(void (*log)(T*, int64_t), double bound) {
  std::mt19937_64 random(2);
  using Limits = std::numeric_limits<T>;
  std::vector<T> x;
  for (int i = 0; i < 200000; ++i) {  // every exponent, denormals too
    const T value = from_bits<T>(random() >> 1);
    x.push_back(std::isfinite(value) && value != 0 ? std::fabs(value) : T(2));
  }
  for (int i = 0; i < 100000; ++i) x.push_back(T(std::uniform_real_distribution<double>(0.5, 4)(random)));
  for (int i = 1; i < 200; ++i) x.push_back(T(1) + T(i - 100) * Limits::epsilon());
  for (int i = 0; i < 1000; ++i) x.push_back(T(1 + random() % 100000) * Limits::denorm_min());
  for (T edge : {Limits::denorm_min(), Limits::min(), Limits::max()}) x.push_back(edge);
  std::vector<T> y = x;
  log(y.data(), int64_t(y.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 1) {
      CHECK(y[i] == 0, "log(1)", y[i]);
      continue;
    }
    const double error = ulps<T>(y[i], std::log(Exact<T>(x[i])));
    worst = std::max(worst, error);
    CHECK(error <= bound, "log", x[i], "=", y[i], "off by", error, "ulp");
  }
  std::cout << "log" << 8 * sizeof(T) << ": " << worst << " ulp\n";

  std::vector<T> special = {T(0), -T(0), Limits::infinity()};
  log(special.data(), 3);
  CHECK(special[0] == -Limits::infinity() && special[1] == -Limits::infinity(), "log(0)", special[0], special[1]);
  CHECK(special[2] == Limits::infinity(), "log(inf)", special[2]);
  std::vector<T> nan = nans<T>();
  log(nan.data(), int64_t(nan.size()));
  for (size_t i = 0; i < nan.size(); ++i) CHECK(std::isnan(nan[i]), "log(NaN)", i, nan[i]);
}

// Arrays of any length, a partial vector at the end included, and nothing beyond the end.
template <class T>
void check_lengths(void (*function)(T*, int64_t), T in, T out) {
  for (int64_t n = 0; n <= 40; ++n) {
    std::vector<T> x(size_t(n) + 20, in);
    function(x.data(), n);
    for (int64_t i = 0; i < n + 20; ++i) CHECK(x[size_t(i)] == (i < n ? out : in), "length", n, "at", i);
  }
}

void check_half(const char* name, const numbers::HalfFormat& format,
                void (*widen)(const uint16_t*, int64_t, int64_t, float*), uint16_t (*narrow)(float)) {
  const std::vector<double> all = format.magnitudes();
  auto check_narrow = [&](float x) {
    const uint16_t got = narrow(x), expected = format.encode(x, all);
    CHECK(std::isnan(x) ? format.is_nan(got) : got == expected, name, "of", x, "is", got, "not", expected);
  };

  // Every pattern, contiguous and strided; 65536 + 3 leaves an incomplete last vector.
  constexpr int64_t n = 65536 + 3;
  std::vector<uint16_t> bits(n), spread(3 * n);
  for (int64_t i = 0; i < n; ++i) bits[size_t(i)] = spread[size_t(3 * i)] = uint16_t(i);
  std::vector<float> wide(n), wide_spread(n);
  widen(bits.data(), 1, n, wide.data());
  widen(spread.data(), 3, n, wide_spread.data());
  for (size_t i = 0; i < size_t(n); ++i) {
    const bool nan = format.is_nan(bits[i]);
    for (float value : {wide[i], wide_spread[i]}) {
      CHECK(nan ? std::isnan(value) : value == format.decode(bits[i]), name, "pattern", bits[i], "read as", value);
      CHECK(nan ? format.is_nan(narrow(value)) : narrow(value) == bits[i], name, "round trip", bits[i], narrow(value));
    }
  }

  // Every tie between neighbours and the floats on both sides of it; the last tie is the overflow threshold.
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const float tie = float((all[i] + all[i + 1]) / 2);
    for (float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, HUGE_VALF)})
      for (float sign : {1.0f, -1.0f}) check_narrow(sign * x);
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) check_narrow(from_bits<float>(random()));
  for (int i = 0; i < 100000; ++i) check_narrow(std::ldexp(float(int32_t(random())), int(random() % 48) - 64));
  using Limits = std::numeric_limits<float>;
  for (float x : {Limits::max(), Limits::infinity(), Limits::denorm_min()})
    for (float sign : {1.0f, -1.0f}) check_narrow(sign * x);
  for (float x : nans<float>()) check_narrow(x);
}

}  // namespace

int main() {
  if (check::skip()) return check::kSkip;
  const Math& math = active();
  check_exp<float>(math.exp_f32, -87.3f);
  check_exp<double>(math.exp_f64, -708.3);
  check_log<float>(math.log_f32, 2.0);
  check_log<double>(math.log_f64, 2.0);
  check_lengths<float>(math.exp_f32, 0.0f, 1.0f);
  check_lengths<double>(math.exp_f64, 0.0, 1.0);
  check_lengths<float>(math.log_f32, 1.0f, 0.0f);
  check_lengths<double>(math.log_f64, 1.0, 0.0);
  check_half("f16", numbers::kF16, math.widen_f16, math.narrow_f16);
  check_half("bf16", numbers::kBf16, math.widen_bf16, math.narrow_bf16);
  return check::finish();
}
