// Small matrix products and activations, for batches of a few rows.  Included by isa.inl.
//
// One product serves all three of a linear layer, because its left factor may be a transpose and its right one has its
// columns across the lanes.  With weights [in, out] (the transpose of torch's) they are
//   forwards          y  [batch, out] = x [batch, in] w [in, out]
//   weights' gradient dw [in, out]    = x^T [in, batch] dy [batch, out]
//   inputs' gradient  dx^T [in, batch] = w [in, out] dy^T [out, batch]
// so that no weights are ever transposed between steps, only rows of a batch.

// A tile of `rows` x `vectors` sums stays in registers while k runs: on AVX-512 24 sums, 2 vectors of b and one number
// of a are 27 of 32 registers; AVX2 and SSE2 have 16.  Each loaded number of a serves 2 products, each vector of b
// `rows`: the loads stay below what two ports deliver while the products run.
#if FEDASD_VECTOR_BYTES == 64 || defined(__aarch64__)
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTileVectors = 2;

// Unit: a's rows are neighbours, as those of a transpose are.  Else every third row has a pointer of its own, from
// which the instruction set reaches the next two: twelve pointers would not stay in registers.
template <class T, int rows, int vectors, bool unit>
void tile_product(const T* a, int64_t row, int64_t step, const T* b, int64_t b_stride, T* c, int64_t c_stride,
                  int64_t k) {
  constexpr int groups = (rows + 2) / 3;
  Vec<T> sum[rows][vectors];
  unrolled<rows>([&](auto i) { unrolled<vectors>([&](auto v) { sum[i][v] = Vec<T>{}; }); });
  const T* left[groups];
  unrolled<groups>([&](auto g) { left[g] = unit ? a + 3 * g : a + 3 * g * row; });
  const int64_t apart = unit ? 1 : row;
  for (int64_t j = 0; j < k; ++j) {
    Vec<T> right[vectors];
    unrolled<vectors>([&](auto v) { right[v] = load<T>(b + v * kLanes<T>); });
    unrolled<rows>([&](auto i) {
      const Vec<T> number = left[i / 3][(i % 3) * apart] - Vec<T>{};  // x - 0 is x, and compiles to a broadcast alone
      unrolled<vectors>([&](auto v) { sum[i][v] += number * right[v]; });
    });
    unrolled<groups>([&](auto g) { left[g] += step; });
    b += b_stride;
  }
  unrolled<rows>(
      [&](auto i) { unrolled<vectors>([&](auto v) { store<T>(c + i * c_stride + v * kLanes<T>, sum[i][v]); }); });
}

template <class T>
using TileProduct = void (*)(const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t, int64_t);

template <class T, int vectors, bool unit, size_t... i>
TileProduct<T> tile_of(int64_t rows, std::index_sequence<i...>) {
  static constexpr TileProduct<T> tiles[] = {tile_product<T, int(i) + 1, vectors, unit>...};
  return tiles[rows - 1];
}
template <class T, int vectors>
TileProduct<T> tile_of(int64_t rows, bool unit) {
  constexpr auto all = std::make_index_sequence<kTileRows>{};
  return unit ? tile_of<T, vectors, true>(rows, all) : tile_of<T, vectors, false>(rows, all);
}

// An element is a sum over k in its order, whatever the tile: the bits depend on the factors alone.
template <class T>
void multiply(const T* a, int64_t row, int64_t step, const T* b, int64_t b_stride, T* c, int64_t c_stride, int64_t m,
              int64_t columns, int64_t k) {
  const int64_t vectors = columns / kLanes<T>, tiles = (m + kTileRows - 1) / kTileRows;
  for (int64_t v = 0; v < vectors; v += kTileVectors) {
    const bool pair = vectors - v >= kTileVectors;
    for (int64_t t = 0; t < tiles; ++t) {  // of about the same height
      const int64_t begin = m * t / tiles, end = m * (t + 1) / tiles;
      const auto tile = pair ? tile_of<T, kTileVectors>(end - begin, row == 1) : tile_of<T, 1>(end - begin, row == 1);
      tile(a + begin * row, row, step, b + v * kLanes<T>, b_stride, c + begin * c_stride + v * kLanes<T>, c_stride, k);
    }
  }
}

template <class T>
inline Vec<T> magnitude(Vec<T> x) {
  return x < Vec<T>{} ? -x : x;
}
// 1 / (1 + exp(-x)), from exp of something not positive.
template <class T>
inline Vec<T> sigmoid(Vec<T> x) {
  const Vec<T> e = exp_nonpositive<T>(-magnitude<T>(x)), s = T(1) / (T(1) + e);
  return x < Vec<T>{} ? e * s : s;
}
template <class T>
inline Vec<T> tanh_of(Vec<T> x) {
  const Vec<T> e = exp_nonpositive<T>(magnitude<T>(x) * T(-2)), t = (T(1) - e) / (T(1) + e);
  return x < Vec<T>{} ? -t : t;
}
template <class T>
inline Vec<T> erf_of(Vec<T> x) {  // one by one: the C library's is exact, and there is no vector version of it
  for (int i = 0; i < kLanes<T>; ++i) x[i] = std::erf(x[i]);
  return x;
}

template <class T>
struct Activated {
  Vec<T> y, derivative;
};
template <class T>
inline Activated<T> activated(Activation f, Vec<T> x) {
  constexpr double kRootHalf = 0.70710678118654752440, kRoot2OverPi = 0.79788456080286535588;
  constexpr double kInverseRoot2Pi = 0.39894228040143267794, kCubic = 0.044715;
  if (f == Activation::tanh) {
    const Vec<T> t = tanh_of<T>(x);
    return {t, T(1) - t * t};
  }
  if (f == Activation::silu) {
    const Vec<T> s = sigmoid<T>(x);
    return {x * s, s * (T(1) + x * (T(1) - s))};
  }
  if (f == Activation::gelu) {
    const Vec<T> half = T(0.5) * (T(1) + erf_of<T>(x * T(kRootHalf)));  // the normal distribution at x
    return {x * half, half + x * T(kInverseRoot2Pi) * exp_nonpositive<T>(x * x * T(-0.5))};
  }
  const Vec<T> t = tanh_of<T>(T(kRoot2OverPi) * (x + T(kCubic) * x * x * x));
  const Vec<T> slope = T(kRoot2OverPi) * (T(1) + T(3 * kCubic) * x * x);
  return {T(0.5) * x * (T(1) + t), T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope};
}

template <class T>
void activate(Activation f, T* y, int64_t stride, T* derivative, int64_t derivative_stride, int64_t rows,
              int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += kLanes<T>) {
      T* const at = y + r * stride + c;
      const Vec<T> x = load<T>(at);
      if (f == Activation::relu) {
        store<T>(at, x > Vec<T>{} ? x : (x == x ? Vec<T>{} : x));  // NaN stays NaN, as in torch
      } else {
        const Activated<T> result = activated<T>(f, x);
        store<T>(at, result.y);
        store<T>(derivative + r * derivative_stride + c, result.derivative);
      }
    }
}

template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t lanes = kLanes<T>;
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < columns; c += lanes) {
      const int64_t height = rows - r < lanes ? rows - r : lanes, width = columns - c < lanes ? columns - c : lanes;
      transpose_square<T>([&](int64_t i) {
        const T* const row = from + (r + i) * from_stride + c;
        return i >= height ? Vec<T>{} : width == lanes ? load<T>(row) : load_partial<T>(row, width, T(0));
      }, [&](int64_t i, Vec<T> v) {
        T* const column = to + (c + i) * to_stride + r;
        if (i >= width) return;
        if (height == lanes) store<T>(column, v);
        else store_partial<T>(column, height, v);
      });
    }
}

template <class T>
void chain_rule(Activation f, T* gradient, int64_t stride, const T* y, int64_t y_stride, const T* derivative,
                int64_t derivative_stride, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += kLanes<T>) {
      T* const at = gradient + r * stride + c;
      const Vec<T> g = load<T>(at);
      if (f == Activation::relu) store<T>(at, load<T>(y + r * y_stride + c) <= Vec<T>{} ? Vec<T>{} : g);
      else store<T>(at, g * load<T>(derivative + r * derivative_stride + c));
    }
}
