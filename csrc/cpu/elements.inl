// Elements of any type: conversions from and to the compute type.  Included by isa.inl.

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline double to_float(double x) { return x; }
inline float to_float(bf16 x) {
  const uint32_t wide = uint32_t(x.bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
inline float to_float(f16 x) {
  // Shift the exponent into place and rescale by 2^112; inf and NaN have the full exponent set.
  const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = uint32_t(x.bits & 0x7fffu) << 13;
  float value;
  std::memcpy(&value, &magnitude, 4);
  value *= 5.192296858534828e33f;
  uint32_t wide;
  std::memcpy(&wide, &value, 4);
  wide |= magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  wide |= sign;
  std::memcpy(&value, &wide, 4);
  return value;
}

template <class To, class T>
inline To from_float(T x) {
  return To(x);
}
template <>
inline bf16 from_float<bf16, float>(float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, 4);
  const uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;  // nearest, ties to even
  return {uint16_t(x == x ? rounded : 0x7fc0u)};
}
template <>
inline f16 from_float<f16, float>(float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, 4);
  const uint32_t sign = (wide >> 16) & 0x8000u;
  uint32_t magnitude = wide & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: let one float addition do the rounding
    float value;
    std::memcpy(&value, &magnitude, 4);
    value += 0.5f;
    std::memcpy(&half, &value, 4);
    half -= 0x3f000000u;
  } else {
    magnitude += 0xc8000fffu + ((magnitude >> 13) & 1u);  // rebias by -112, round to nearest even
    half = magnitude >> 13;
  }
  return {uint16_t(sign | half)};
}
template <>
inline bf16 from_float<bf16, double>(double x) {
  return from_float<bf16, float>(float(x));
}
template <>
inline f16 from_float<f16, double>(double x) {
  return from_float<f16, float>(float(x));
}

// Calls f with a typed pointer.
template <class F>
inline void visit(DType type, const void* data, F f) {
  switch (type) {
    case DType::f32: return f(static_cast<const float*>(data));
    case DType::f64: return f(static_cast<const double*>(data));
    case DType::bf16: return f(static_cast<const bf16*>(data));
    case DType::f16: return f(static_cast<const f16*>(data));
  }
}

template <class T, class From>
__attribute__((noinline)) void widen(const From* from, int64_t stride, int64_t n, T* to) {
  int64_t i = 0;
  if (stride == 1) {
#if FEDASD_VECTOR_BYTES == 64
    if constexpr (std::is_same_v<From, f16> && std::is_same_v<T, float>)
      for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(__mmask16(-1), _mm256_loadu_si256((const __m256i*)(from + i))));
#elif FEDASD_VECTOR_BYTES == 32
    if constexpr (std::is_same_v<From, f16> && std::is_same_v<T, float>)
      for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(from + i))));
#endif
    for (; i < n; ++i) to[i] = T(to_float(from[i]));
  } else {
    for (; i < n; ++i) to[i] = T(to_float(from[i * stride]));
  }
}

template <class T>
constexpr DType kTypeOf = std::is_same_v<T, float> ? DType::f32 : DType::f64;

template <class T>
inline T element(const Matrix& m, int64_t row, int64_t col) {
  if (m.type == kTypeOf<T>) return static_cast<const T*>(m.data)[row * m.row_stride + col * m.col_stride];
  T value{};
  visit(m.type, m.data, [&](auto* data) { value = T(to_float(data[row * m.row_stride + col * m.col_stride])); });
  return value;
}
