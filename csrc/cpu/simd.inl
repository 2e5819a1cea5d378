// Portable SIMD on the compiler's vector types: the same source becomes AVX-512, AVX2, SSE2 or NEON.
// Included by isa.inl once for each instruction set, inside that set's own namespace, because two
// functions of one name compiled for different CPUs must never be merged by the linker.
//
// Before inclusion: FEDASD_ISA (namespace) and FEDASD_VECTOR_BYTES.

template <class T>
struct VecOf;
template <>
struct VecOf<float> {
  typedef float type __attribute__((vector_size(FEDASD_VECTOR_BYTES)));
  typedef int32_t bits __attribute__((vector_size(FEDASD_VECTOR_BYTES)));
  typedef uint32_t unsigned_bits __attribute__((vector_size(FEDASD_VECTOR_BYTES)));
};
template <>
struct VecOf<double> {
  typedef double type __attribute__((vector_size(FEDASD_VECTOR_BYTES)));
  typedef int64_t bits __attribute__((vector_size(FEDASD_VECTOR_BYTES)));
  typedef uint64_t unsigned_bits __attribute__((vector_size(FEDASD_VECTOR_BYTES)));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
using Bits = typename VecOf<T>::bits;
template <class T>
using UnsignedBits = typename VecOf<T>::unsigned_bits;  // wraps around, which -0 and NaN make use of
template <class T>
constexpr int kLanes = FEDASD_VECTOR_BYTES / int(sizeof(T));

// Rounds a product before it is used again.  Without it the compiler may fuse a*b - c into one instruction, and
// then student == teacher would leave a rounding residue instead of a zero loss and gradient.
#if FEDASD_VECTOR_BYTES == 64
#define FEDASD_ROUNDED(v) asm("" : "+v"(v))
#elif defined(__x86_64__)
#define FEDASD_ROUNDED(v) asm("" : "+x"(v))
#elif defined(__aarch64__)
#define FEDASD_ROUNDED(v) asm("" : "+w"(v))
#else
#define FEDASD_ROUNDED(v) asm("" : "+m"(v))
#endif

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
inline void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}
template <class T>
inline Vec<T> splat(T x) {
  return Vec<T>{} + x;
}

#if FEDASD_VECTOR_BYTES == 32
// All bits of the first n lanes.
template <class T>
inline __m256i first_lanes(int64_t n) {
  static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  return _mm256_loadu_si256((const __m256i*)(bits + 8 - n * int64_t(sizeof(T) / 4)));
}
#endif

// The first n < kLanes elements, the rest filled with `pad`; never touches memory beyond them.
template <class T>
inline Vec<T> load_partial(const T* p, int64_t n, T pad) {
#if FEDASD_VECTOR_BYTES == 64
  if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_mask_loadu_ps((__m512)splat<T>(pad), __mmask16((1u << n) - 1), p);
  else return (Vec<T>)_mm512_mask_loadu_pd((__m512d)splat<T>(pad), __mmask8((1u << n) - 1), p);
#elif FEDASD_VECTOR_BYTES == 32
  const __m256i mask = first_lanes<T>(n);
  if constexpr (sizeof(T) == 4)
    return (Vec<T>)_mm256_blendv_ps((__m256)splat<T>(pad), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
  else return (Vec<T>)_mm256_blendv_pd((__m256d)splat<T>(pad), _mm256_maskload_pd(p, mask), _mm256_castsi256_pd(mask));
#else
  alignas(FEDASD_VECTOR_BYTES) T lane[kLanes<T>];
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i < n ? p[i] : pad;
  return load<T>(lane);
#endif
}
template <class T>
inline void store_partial(T* p, int64_t n, Vec<T> v) {
#if FEDASD_VECTOR_BYTES == 64
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
  else _mm512_mask_storeu_pd(p, __mmask8((1u << n) - 1), (__m512d)v);
#elif FEDASD_VECTOR_BYTES == 32
  if constexpr (sizeof(T) == 4) _mm256_maskstore_ps(p, first_lanes<T>(n), (__m256)v);
  else _mm256_maskstore_pd(p, first_lanes<T>(n), (__m256d)v);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

// f(i, n) for the vectors of a range: n is the constant `lanes`, or how many elements the last vector has.
template <int64_t lanes, class F>
inline void over_vectors(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) f(i, std::integral_constant<int64_t, lanes>{});
  if (i < end) f(i, end - i);
}
template <class N>
constexpr bool is_partial = std::is_same_v<N, int64_t>;

template <class T, class N>
inline Vec<T> read(const T* p, N n, T pad = 0) {
  if constexpr (is_partial<N>) return load_partial<T>(p, n, pad);
  else return load<T>(p);
}
template <class T, class N>
inline void write(T* p, N n, Vec<T> v) {
  if constexpr (is_partial<N>) store_partial<T>(p, n, v);
  else store<T>(p, v);
}
// f with a constant for a flag.
template <class F>
inline auto with_flag(bool flag, F f) {
  return flag ? f(std::true_type{}) : f(std::false_type{});
}

// Horizontal reduction in a fixed tree order: fold the upper half onto the lower one.  `op` is generic.
template <class T, int lanes>
struct Wide {
  typedef T type __attribute__((vector_size(lanes * sizeof(T))));
};
template <class T, int lanes, class Op, size_t... i>
inline T fold(typename Wide<T, lanes>::type v, Op op, std::index_sequence<i...>) {
#if FEDASD_HAS_SHUFFLE
  if constexpr (lanes == 2) {
    return op(v[0], v[1]);
  } else {
    const typename Wide<T, lanes / 2>::type lower = __builtin_shufflevector(v, v, i...);
    const typename Wide<T, lanes / 2>::type upper = __builtin_shufflevector(v, v, (i + lanes / 2)...);
    return fold<T, lanes / 2>(op(lower, upper), op, std::make_index_sequence<lanes / 4>{});
  }
#else
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) v[k] = op(v[k], v[k + width]);
  return v[0];
#endif
}
template <class T, class Op>
inline T reduce(Vec<T> v, Op op) {
  return fold<T, kLanes<T>>(v, op, std::make_index_sequence<kLanes<T> / 2>{});
}

template <class T>
struct Constants;
template <>
struct Constants<float> {
  static constexpr int mantissa_bits = 23, log_terms = 5;
  static constexpr uint32_t exponent_bias = 127;
  static constexpr float round_magic = 12582912.0f;  // 1.5 * 2^23
  static constexpr float lowest_exp2 = -126.0f;      // below, where 2^n is no normal number, the result is 0
  static constexpr float ln2_hi = 0.693359375f, ln2_lo = -2.12194440e-4f;  // n * ln2_hi is exact
  static constexpr uint32_t sqrt_half_bits = 0x3f3504f3, magic_bits = 0x4b400000;
  static constexpr float min_normal = 1.17549435e-38f, denormal_scale = 16777216.0f;  // 2^24
  static constexpr float denormal_log2 = 24.0f;
  // 2^f = 1 + f P(f) on |f| <= 1/2: relative error of the polynomial 5.1e-9
  static constexpr float exp2_p[] = {0.00015453222611639232f, 0.0013390932280860178f, 0.0096180824453484352f,
                                     0.055503569849416415f,   0.24022650760801401f,   0.69314718805317026f};
};
template <>
struct Constants<double> {
  static constexpr int mantissa_bits = 52, log_terms = 10;
  static constexpr uint64_t exponent_bias = 1023;
  static constexpr double round_magic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double lowest_exp2 = -1022.0;
  static constexpr double ln2_hi = 0.693147180369123816490, ln2_lo = 1.90821492927058770002e-10;
  static constexpr uint64_t sqrt_half_bits = 0x3fe6a09e667f3bcd, magic_bits = 0x4338000000000000;
  static constexpr double min_normal = 2.2250738585072014e-308, denormal_scale = 18014398509481984.0;  // 2^54
  static constexpr double denormal_log2 = 54.0;
  // relative error of the polynomial 8.5e-18
  static constexpr double exp2_p[] = {4.4549719197075452844e-10, 7.0726071893649128497e-9,   1.0178062389205206401e-7,
                                      1.3215442481659663991e-6,  0.000015252733829929097971, 0.00015403530441910486318,
                                      0.0013333558146416879934,  0.0096181291076067846376,   0.055504108664821594425,
                                      0.24022650695910098382,    0.69314718055994530942};
};

constexpr double kLog2E = 1.4426950408889634;

// 2^y for y <= 0; 2^-inf = 0, NaN stays NaN.  y = n + f with n the nearest integer and f exact, 2^y = 2^n 2^f.
//
// exp(x) is 2^(x log2 e), where the product's rounding makes a relative error of |x| roundoffs.  Softmax terms are
// relative to the largest, 1, and |x| exp(x) < 0.37: seen from there the error is below the rounding of the term.
template <class T>
inline Vec<T> exp2_nonpositive(Vec<T> y) {
  using K = Constants<T>;
#if FEDASD_VECTOR_BYTES == 64
  Vec<T> n;
  if constexpr (sizeof(T) == 4) n = (Vec<T>)_mm512_maskz_roundscale_ps(__mmask16(-1), (__m512)y, 0);
  else n = (Vec<T>)_mm512_maskz_roundscale_pd(__mmask8(-1), (__m512d)y, 0);
#else
  const Vec<T> shifted = y + K::round_magic;  // leaves n in the low mantissa bits
  const Vec<T> n = shifted - K::round_magic;
#endif
  const Vec<T> f = y - n;
  Vec<T> poly = splat<T>(K::exp2_p[0]);
  for (int k = 1; k < int(sizeof(K::exp2_p) / sizeof(T)); ++k) poly = poly * f + K::exp2_p[k];
  poly = poly * f + T(1);
#if FEDASD_VECTOR_BYTES == 64
  // scalef(anything, -inf) is 0, also for the NaN that f is then.
  if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_maskz_scalef_ps(__mmask16(-1), (__m512)poly, (__m512)n);
  else return (Vec<T>)_mm512_maskz_scalef_pd(__mmask8(-1), (__m512d)poly, (__m512d)n);
#else
  // Multiplying by 2^n, not adding n to the exponent bits: a NaN payload must not turn into a number.
  const UnsignedBits<T> scale = (UnsignedBits<T>(shifted) + K::exponent_bias) << K::mantissa_bits;
  const Vec<T> value = poly * Vec<T>(scale);
  return y < K::lowest_exp2 ? Vec<T>{} : value;
#endif
}

template <class T>
inline Vec<T> exp_nonpositive(Vec<T> x) {
  return exp2_nonpositive<T>(x * T(kLog2E));
}

// log(x) for x >= 0, about 1 ulp; log(0) = -inf, log(inf) = inf, NaN stays NaN.
// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(f), f = (m-1)/(m+1).
template <class T>
inline Vec<T> log(Vec<T> x) {
  using K = Constants<T>;
  const Bits<T> tiny = x < K::min_normal;
  const Vec<T> normal = tiny ? x * K::denormal_scale : x;
  const Bits<T> offset = Bits<T>(UnsignedBits<T>(normal) - K::sqrt_half_bits);
  const UnsignedBits<T> exponent = UnsignedBits<T>(offset >> K::mantissa_bits);  // keeps the sign
  const Vec<T> m = Vec<T>(UnsignedBits<T>(normal) - (exponent << K::mantissa_bits));
  const Vec<T> scaled = Vec<T>(exponent + K::magic_bits) - K::round_magic;  // int -> float
  const Vec<T> e = tiny ? scaled - K::denormal_log2 : scaled;
  const Vec<T> f = (m - T(1)) / (m + T(1));
  const Vec<T> f2 = f * f;
  Vec<T> series = splat<T>(T(2) / T(2 * K::log_terms - 1));
  for (int k = K::log_terms - 2; k >= 1; --k) series = series * f2 + T(2) / T(2 * k + 1);
  const Vec<T> value = (f * f2 * series + e * K::ln2_lo) + T(2) * f + e * K::ln2_hi;
  const T infinity = std::numeric_limits<T>::infinity();
  const Vec<T> proper = x < infinity ? value : x;  // also NaN: every comparison with it is false
  return x == Vec<T>{} ? splat<T>(-infinity) : proper;
}

// f(vector) over an array of per-row numbers; the last, partial vector is padded with 1, which every f takes.
template <class T, class F>
inline void over_array(T* x, int64_t n, F f) {
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    if (n - i >= kLanes<T>) store<T>(x + i, f(load<T>(x + i)));
    else store_partial<T>(x + i, n - i, f(load_partial<T>(x + i, n - i, T(1))));
  }
}
template <class T>
inline void exp_nonpositive(T* x, int64_t n) {
  over_array<T>(x, n, [](Vec<T> v) { return exp_nonpositive<T>(v); });
}
template <class T>
inline void log(T* x, int64_t n) {
  over_array<T>(x, n, [](Vec<T> v) { return log<T>(v); });
}
