// One number a row, in the lanes of a vector: sums in double, and reductions and transposes of several rows at once.
// Included by isa.inl.

// f(0), f(1) .. f(n - 1) with constants, so that arrays that they index stay in registers: a loop is unrolled only
// after the compiler has decided that they cannot.
template <class F, size_t... i>
inline void unrolled(F f, std::index_sequence<i...>) {
  (f(std::integral_constant<int, int(i)>{}), ...);
}
template <int n, class F>
inline void unrolled(F f) {
  unrolled(f, std::make_index_sequence<size_t(n)>{});
}

// As many elements as a vector has doubles, from and to doubles.
template <class T>
using Half = typename Wide<T, kLanes<double>>::type;

template <class T>
inline Vec<double> widen(Half<T> v) {
#if FEDASD_VECTOR_BYTES == 64
  if constexpr (sizeof(T) == 4) return (Vec<double>)_mm512_maskz_cvtps_pd(__mmask8(-1), (__m256)v);
#elif FEDASD_VECTOR_BYTES == 32
  if constexpr (sizeof(T) == 4) return (Vec<double>)_mm256_cvtps_pd((__m128)v);
#endif
  return __builtin_convertvector(v, Vec<double>);
}
inline Half<float> narrow(Vec<double> v) {
#if FEDASD_VECTOR_BYTES == 64
  return (Half<float>)_mm512_maskz_cvtpd_ps(__mmask8(-1), (__m512d)v);
#elif FEDASD_VECTOR_BYTES == 32
  return (Half<float>)_mm256_cvtpd_ps((__m256d)v);
#else
  return __builtin_convertvector(v, Half<float>);
#endif
}

template <size_t... i>
inline void split(Vec<float> v, Half<float> (&half)[2], std::index_sequence<i...>) {
#if FEDASD_HAS_SHUFFLE
  half[0] = __builtin_shufflevector(v, v, int(i)...);
  half[1] = __builtin_shufflevector(v, v, int(i + sizeof...(i))...);
#else
  std::memcpy(half, &v, sizeof v);
#endif
}
template <size_t... i>
inline Vec<float> join(const Half<float> (&half)[2], std::index_sequence<i...>) {
#if FEDASD_HAS_SHUFFLE
  return __builtin_shufflevector(half[0], half[1], int(i)...);
#else
  Vec<float> v;
  std::memcpy(&v, half, sizeof v);
  return v;
#endif
}

// A double for each lane of Vec<T>: one or two vectors.
template <class T>
struct Totals {
  static constexpr int parts = int(sizeof(double) / sizeof(T)), lanes = kLanes<double>;
  Vec<double> part[parts];

  Totals() {
    for (auto& p : part) p = Vec<double>{};
  }
  // Not trivial, so that it is returned in memory where it is not inlined: gcc 12 clears the upper lanes of a struct
  // that is returned in a vector register (a vzeroupper before the return).
  Totals(const Totals& other) { *this = other; }
  Totals& operator=(const Totals& other) {
    for (int p = 0; p < parts; ++p) part[p] = other.part[p];
    return *this;
  }

  template <class F>
  static Totals each(F f) {
    Totals result;
    unrolled<parts>([&](auto p) { result.part[p] = f(p); });
    return result;
  }
  static Totals of(Vec<T> v) {
    if constexpr (parts == 1) {
      return each([&](int) { return v; });
    } else {
      Half<T> half[parts];
      split(v, half, std::make_index_sequence<lanes>{});
      return each([&](int p) { return widen<T>(half[p]); });
    }
  }
  Vec<T> narrow() const {
    if constexpr (parts == 1) return part[0];
    else
      return join({cpu::FEDASD_ISA::narrow(part[0]), cpu::FEDASD_ISA::narrow(part[1])},
                  std::make_index_sequence<kLanes<T>>{});
  }
  // The first `count` rows; lanes beyond them are 0.
  static Totals read(const double* from, int count) {
    return each([&](int p) {
      const int n = count - p * lanes;
      return n >= lanes ? load<double>(from + p * lanes)
             : n > 0    ? load_partial<double>(from + p * lanes, n, 0)
                        : Vec<double>{};
    });
  }
  void write(double* to, int count) const {
    unrolled<parts>([&](auto p) {
      const int n = count - p * lanes;
      if (n >= lanes) store<double>(to + p * lanes, part[p]);
      else if (n > 0) store_partial<double>(to + p * lanes, n, part[p]);
    });
  }

  friend Totals operator+(const Totals& a, const Totals& b) {
    return each([&](int p) { return a.part[p] + b.part[p]; });
  }
  friend Totals operator-(const Totals& a, const Totals& b) {
    return each([&](int p) { return a.part[p] - b.part[p]; });
  }
  friend Totals operator*(const Totals& a, const Totals& b) {
    return each([&](int p) { return a.part[p] * b.part[p]; });
  }
  friend Totals operator*(const Totals& a, double b) {
    return each([&](int p) { return a.part[p] * b; });
  }
  friend Totals operator/(double a, const Totals& b) {
    return each([&](int p) { return a / b.part[p]; });
  }
  Totals& operator+=(const Totals& b) { return *this = *this + b; }
};

#if FEDASD_HAS_SHUFFLE
// Halves blocks of `width` lanes: each is folded, its upper half onto its lower one, and the results of `a` stand
// before those of `b`.
template <class T, int width, class Op, size_t... l>
inline Vec<T> fold_blocks(Vec<T> a, Vec<T> b, Op op, std::index_sequence<l...>) {
  constexpr int half = width / 2;
  return op(__builtin_shufflevector(a, b, int(l) / half * width + int(l) % half...),
            __builtin_shufflevector(a, b, int(l) / half * width + int(l) % half + half...));
}
template <class T, int width, class Op>
inline void fold_rows(Vec<T> (&row)[kLanes<T>], Op op) {
  unrolled<width / 2>([&](auto i) {
    row[i] = fold_blocks<T, width>(row[2 * i], row[2 * i + 1], op, std::make_index_sequence<size_t(kLanes<T>)>{});
  });
  if constexpr (width > 2) fold_rows<T, width / 2>(row, op);
}
#endif

// `reduce` of as many rows as there are lanes, lane r for row r, in the same tree order and so with the same bits, for
// little more than the price of one: 3 instructions a row.
template <class T, class Op>
inline Vec<T> reduce_rows(const Vec<T>* rows, Op op) {
  Vec<T> row[kLanes<T>];
  unrolled<kLanes<T>>([&](auto i) { row[i] = rows[i]; });
#if FEDASD_HAS_SHUFFLE
  fold_rows<T, kLanes<T>>(row, op);
#else
  for (int i = 0; i < kLanes<T>; ++i) row[0][i] = reduce<T>(rows[i], op);
#endif
  return row[0];
}

// One of the log2(lanes) stages of transposing a square: lanes that differ in the bit `s` change places with rows that
// do.
template <class T, int s, size_t... l>
inline void exchange(Vec<T>& a, Vec<T>& b, std::index_sequence<l...>) {
#if FEDASD_HAS_SHUFFLE
  const Vec<T> first = __builtin_shufflevector(a, b, int(l & s ? kLanes<T> + (l ^ s) : l)...);
  b = __builtin_shufflevector(a, b, int(l & s ? kLanes<T> + l : l ^ s)...);
  a = first;
#else
  const Vec<T> x = a, y = b;
  ((a[l] = l & s ? y[l ^ s] : x[l], b[l] = l & s ? y[l] : x[l ^ s]), ...);
#endif
}
template <class T, int s>
inline void transpose_stages(Vec<T> (&square)[kLanes<T>]) {
  unrolled<kLanes<T>>([&](auto i) {
    if constexpr (!(i & s)) exchange<T, s>(square[i], square[i + s], std::make_index_sequence<size_t(kLanes<T>)>{});
  });
  if constexpr (2 * s < kLanes<T>) transpose_stages<T, 2 * s>(square);
}

// Of a square: source(i) is row i, and sink(i, v) takes column i.
template <class T, class Source, class Sink>
inline void transpose_square(Source source, Sink sink) {
  Vec<T> square[kLanes<T>];
  unrolled<kLanes<T>>([&](auto i) { square[i] = source(i); });
  transpose_stages<T, 1>(square);
  unrolled<kLanes<T>>([&](auto i) { sink(i, square[i]); });
}
