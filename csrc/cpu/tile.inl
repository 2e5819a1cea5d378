// Loads and stores rows of any type and stride as vectors of the compute type.  A contiguous row of that type is used
// where it lies; any other goes through a tile, a short array in L1.  Included by isa.inl.

constexpr int64_t kTile = 1024;  // elements; four tiles of float are half of a 32 KiB L1 cache

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

// The rows that are computed together: one row with its classes across the lanes, or, where classes
// are few, one row a lane.  A negative label marks a lane without a row.
struct Group {
  const int64_t* row;
  const int64_t* label;
  int count;
};

// Classes across the lanes.
template <class T>
struct Across {
  using Scalar = T;
  using Total = double;
  // Runs of 16 terms a lane are added in T, the runs in double: the error does not grow with C, stays below that
  // of rounding the loss to float, and the conversions hardly show.
  struct Sum {
    Vec<T> run{};
    Doubles<T> runs{};
    void add(int64_t i, Vec<T> v) {
      run += v;
      if (i % 16 == 15) flush();
    }
    void flush() {
      runs += to_doubles<T>(run);
      run = Vec<T>{};
    }
  };
  static constexpr int rows = 1;
  static constexpr int64_t classes = kTile;  // per tile
  static int64_t vectors(int64_t n) { return (n + kLanes<T> - 1) / kLanes<T>; }
  static T max(Vec<T> v) {
    return reduce<T>(v, [](auto a, auto b) { return a > b ? a : b; });
  }
  static Total total(Sum sum) {
    sum.flush();
    return fold<double, kLanes<T>>(sum.runs, [](auto a, auto b) { return a + b; },
                                   std::make_index_sequence<kLanes<T> / 2>{});
  }
  static Total as_total(T x) { return x; }
  static T narrow(Total x) { return T(x); }
  static T exp(T x) { return exp_nonpositive<T>(splat<T>(x))[0]; }
  static T log(double x) { return T(cpu::FEDASD_ISA::log<double>(splat<double>(x))[0]); }
  static T scalar(const T* lanes) { return lanes[0]; }
  static T lane(T x, int) { return x; }
  static void put(double* to, int, double x) { *to = x; }
  static void put_difference(double* to, int, T a, T b) { *to = double(a) - double(b); }
  static int64_t at(int64_t c, int) { return c; }

  struct In {
    const T* data;
    int64_t whole, rest;  // whole vectors, and the elements after them
    T pad;
    Vec<T> operator[](int64_t i) const {
      return i < whole ? load<T>(data + i * kLanes<T>) : load_partial<T>(data + i * kLanes<T>, rest, pad);
    }
  };
  struct Out {
    T* data;
    int64_t whole, rest;
    void put(int64_t i, Vec<T> v) const {
      i < whole ? store<T>(data + i * kLanes<T>, v) : store_partial<T>(data + i * kLanes<T>, rest, v);
    }
  };

  // `copy`: into the buffer in any case, because the caller is going to change it.
  static In load_tile(const Matrix& m, const Group& g, int64_t c0, int64_t n, T pad, bool copy, T* buffer) {
    const int64_t begin = g.row[0] * m.row_stride + c0 * m.col_stride;
    const T* data = buffer;
    if (!copy && m.type == kTypeOf<T> && m.col_stride == 1) data = static_cast<const T*>(m.data) + begin;
    else visit(m.type, m.data, [&](auto* from) { widen<T>(from + begin, m.col_stride, n, buffer); });
    return {data, n / kLanes<T>, n % kLanes<T>, pad};
  }
  // Straight into memory if it is of the compute type.
  static Out out_tile(void* out, DType type, int64_t offset, int64_t n, T* buffer) {
    return {type == kTypeOf<T> ? static_cast<T*>(out) + offset : buffer, n / kLanes<T>, n % kLanes<T>};
  }
  template <class To>
  static void store_rows(To* out, const Group& g, int64_t classes, int64_t c0, int64_t n, const T* buffer) {
    To* to = out + g.row[0] * classes + c0;
    for (int64_t c = 0; c < n; ++c) to[c] = from_float<To, T>(buffer[c]);
  }
};

// One row a lane: no horizontal reductions and no lanes wasted when C is small.
template <class T>
struct Transposed {
  using Scalar = Vec<T>;
  using Total = Doubles<T>;
  struct Sum {
    Total terms{};
    void add(int64_t, Vec<T> v) { terms += to_doubles<T>(v); }
  };
  static constexpr int rows = kLanes<T>;
  static constexpr int64_t classes = kTile / kLanes<T>;
  static int64_t vectors(int64_t n) { return n; }
  static Vec<T> max(Vec<T> v) { return v; }
  static Total total(Sum sum) { return sum.terms; }
  static Total as_total(Vec<T> x) { return to_doubles<T>(x); }
  static Vec<T> narrow(Total x) { return from_doubles<T>(x); }
  static Vec<T> exp(Vec<T> x) { return exp_nonpositive<T>(x); }
  static Vec<T> log(Total x) { return cpu::FEDASD_ISA::log<T>(narrow(x)); }
  static Vec<T> scalar(const T* lanes) { return load<T>(lanes); }
  static T lane(Vec<T> x, int r) { return x[r]; }
  template <class V>
  static void put(double* to, int count, V x) {
    for (int r = 0; r < count; ++r) to[r] = double(x[r]);
  }
  static void put_difference(double* to, int count, Vec<T> a, Vec<T> b) {
    for (int r = 0; r < count; ++r) to[r] = double(a[r]) - double(b[r]);
  }
  static int64_t at(int64_t c, int r) { return c * kLanes<T> + r; }

  struct In {
    const T* data;
    Vec<T> operator[](int64_t i) const { return load<T>(data + i * kLanes<T>); }
  };
  struct Out {
    T* data;
    void put(int64_t i, Vec<T> v) const { store<T>(data + i * kLanes<T>, v); }
  };

  __attribute__((noinline)) static In load_tile(const Matrix& m, const Group& g, int64_t c0, int64_t n, T, bool,
                                                T* buffer) {
    visit(m.type, m.data, [&](auto* data) {
      for (int r = 0; r < rows; ++r) {
        if (r < g.count && g.label[r] >= 0) {
          auto* from = data + g.row[r] * m.row_stride + c0 * m.col_stride;
          for (int64_t c = 0; c < n; ++c) buffer[at(c, r)] = T(to_float(from[c * m.col_stride]));
        } else {
          for (int64_t c = 0; c < n; ++c) buffer[at(c, r)] = T(0);
        }
      }
    });
    return {buffer};
  }
  static Out out_tile(void*, DType, int64_t, int64_t, T* buffer) { return {buffer}; }
  template <class To>
  static void store_rows(To* out, const Group& g, int64_t classes_, int64_t c0, int64_t n, const T* buffer) {
    for (int r = 0; r < g.count; ++r) {
      To* to = out + g.row[r] * classes_ + c0;
      if (g.label[r] >= 0)
        for (int64_t c = 0; c < n; ++c) to[c] = from_float<To, T>(buffer[at(c, r)]);
      else std::memset(to, 0, size_t(n) * sizeof(To));
    }
  }
};

template <class L, class T>
__attribute__((noinline)) void store_tile(void* out, DType type, const Group& g, int64_t classes, int64_t c0, int64_t n,
                                          const T* buffer) {
  visit(type, out, [&](auto* typed) {
    using To = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    L::store_rows(const_cast<To*>(typed), g, classes, c0, n, buffer);
  });
}

// Overwrites (or adds to) the true class of each row, where it lies in this tile.
template <class L, class T, class F>
inline void at_true_class(const Group& g, int64_t c0, int64_t n, T* buffer, F f) {
  for (int r = 0; r < g.count; ++r)
    if (g.label[r] >= c0 && g.label[r] < c0 + n) f(buffer[L::at(g.label[r] - c0, r)], r);
}
