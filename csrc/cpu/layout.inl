// The two ways in which a group of rows lies in vectors: classes across the lanes, one row after another, or one row a
// lane.  Either way a group has up to as many rows as a vector has lanes, and what is known of each row (its maximum,
// its sums, the factors of its gradient) is a lane of a vector: horizontal reductions, divisions, exponentials and
// logarithms of single numbers are done for all rows of the group at once.
//
// A contiguous row of the compute type is used where it lies; any other goes through a buffer in L1.
// Included by isa.inl.

constexpr int64_t kTile = 1024;         // classes of a longer row that are computed at a time
constexpr int64_t kBuffer = 2 * kTile;  // elements of a group: its exponentials are a quarter of a 32 KiB L1 cache

// Some rows of a matrix.  A negative label marks a row that is ignored: it is neither read nor computed.
struct Group {
  int64_t begin;
  const int64_t* row;  // where the rows are; null: from `begin` on
  const int64_t* label;
  int count;

  int64_t at(int r) const { return row ? row[r] : begin + r; }
  bool valid(int r) const { return r < count && label[r] >= 0; }
  Group only(int r) const { return {begin + r, row ? row + r : nullptr, label + r, 1}; }
};

// A number for each row of a group, in memory: a loop over one row's classes broadcasts it from there.
template <class T>
struct Lanes {
  alignas(FEDASD_VECTOR_BYTES) T lane[kLanes<T>];
  Lanes() { store<T>(lane, Vec<T>{}); }
  Lanes& operator=(Vec<T> v) {
    store<T>(lane, v);
    return *this;
  }
  Vec<T> all() const { return load<T>(lane); }
};

// Classes across the lanes.
template <class T>
struct Across {
  using Each = T;                            // a row's number, inside the loops over its classes
  static constexpr int64_t classes = kTile;  // per tile

  // Runs of 16 terms a lane are added in T, the runs in double: the error does not grow with C, stays below that
  // of rounding the loss to float, and the conversions hardly show.
  struct Sum {
    Vec<T> run{};
    Totals<T> runs{};
    void add(Vec<T> v) { run += v; }
    void end_run() {
      runs += Totals<T>::of(run);
      run = Vec<T>{};
    }
  };
  // The sums of all rows, before their lanes are added.
  struct Sums {
    Vec<double> row[kLanes<T>];
    const int count;
    explicit Sums(int rows) : count(rows) {
      row[0] = Vec<double>{};
      if (count > 1) unrolled<kLanes<T>>([&](auto r) { row[r] = Vec<double>{}; });
    }
    void put(int r, const Sum& sum) {
      if constexpr (Totals<T>::parts == 1) row[r] = sum.runs.part[0];
      else row[r] = sum.runs.part[0] + sum.runs.part[1];
    }
    Totals<T> total() const {
      auto add = [](auto a, auto b) { return a + b; };
      if (count == 1) {  // a long row, tile by tile
        Totals<T> result;
        result.part[0][0] = reduce<double>(row[0], add);
        return result;
      }
      return Totals<T>::each([&](int p) {
        return p * kLanes<double> < count ? reduce_rows<double>(row + p * kLanes<double>, add) : Vec<double>{};
      });
    }
  };
  struct Maxima {
    Vec<T> row[kLanes<T>];
    Maxima() {
      unrolled<kLanes<T>>([&](auto r) { row[r] = splat<T>(-std::numeric_limits<T>::infinity()); });
    }
    Vec<T> all() const {
      return reduce_rows<T>(row, [](auto a, auto b) { return a > b ? a : b; });
    }
  };

  // A row of the group, from its beginning to the next, where it is copied.
  static int64_t stride(int64_t n) { return n >= kTile ? kTile : (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>; }
  static int64_t rows(int64_t n) { return kBuffer / stride(n) < kLanes<T> ? kBuffer / stride(n) : kLanes<T>; }
  template <class F>
  static void each_row(const Group& g, F f) {
    for (int r = 0; r < g.count; ++r)
      if (g.label[r] >= 0) f(r);
  }
  // f(i, width) for the vectors of a row's classes.
  template <class F>
  static void each_vector(int64_t n, F f) {
    over_vectors<kLanes<T>>(0, n, f);
  }
  // With end_run() after every run and the last.
  template <class F, class End>
  static void each_vector(int64_t n, F f, End end_run) {
    constexpr int64_t run = 16 * kLanes<T>;
    for (int64_t i = 0; i < n; i += run) {
      over_vectors<kLanes<T>>(i, n - i < run ? n : i + run, f);
      end_run();
    }
  }
  static T pick(const Lanes<T>& x, int r) { return x.lane[r]; }
  // As T, of a logarithm in double.
  static Vec<T> log(const Totals<T>& x) {
    return Totals<T>::each([&](int p) { return cpu::FEDASD_ISA::log<double>(x.part[p]); }).narrow();
  }
  static Group part(const Group& g, int r) { return g.only(r); }

  struct In {
    const T* row[kLanes<T>] = {};
  };
  // `copy`: into the buffer in any case, because the caller is going to change it.
  static void load_tile(const Matrix& m, const Group& g, int64_t c0, int64_t n, bool copy, T* buffer, In& in) {
    const bool direct = !copy && m.type == kTypeOf<T> && m.col_stride == 1;
    for (int r = 0; r < g.count; ++r) {
      if (g.label[r] < 0) continue;
      const int64_t begin = g.at(r) * m.row_stride + c0 * m.col_stride;
      if (direct) {
        in.row[r] = static_cast<const T*>(m.data) + begin;
      } else {
        T* const to = buffer + r * stride(n);
        visit(m.type, m.data, [&](auto* from) { widen<T>(from + begin, m.col_stride, n, to); });
        in.row[r] = to;
      }
    }
  }
  // Rows that come in any order are not foreseen by the hardware.
  static void prefetch(const Matrix& m, const Group& g, int64_t n) {
    const int64_t size = size_of(m.type), bytes = n * size;
    if (m.col_stride != 1) return;
    each_row(g, [&](int r) {
      const char* const row = static_cast<const char*>(m.data) + g.at(r) * m.row_stride * size;
      for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
    });
  }
  static T& at(T* tile, int64_t c, int) { return tile[c]; }
  static T& at_copy(T* buffer, int64_t n, int64_t c, int r) { return buffer[r * stride(n) + c]; }
  // Straight into memory if it is of the compute type.
  static T* out_tile(void* out, DType type, int64_t offset, T* buffer) {
    return out && type == kTypeOf<T> ? static_cast<T*>(out) + offset : buffer;
  }
  template <class To>
  static void store_rows(To* out, const Group& g, int64_t row_classes, int64_t c0, int64_t n, const T* buffer) {
    To* to = out + g.at(0) * row_classes + c0;
    for (int64_t c = 0; c < n; ++c) to[c] = from_float<To, T>(buffer[c]);
  }
};

// One row a lane: no horizontal reductions and no lanes wasted when C is small.
template <class T>
struct Transposed {
  using Each = Vec<T>;
  static constexpr int64_t classes = kBuffer / kLanes<T>;

  struct Sum {
    Totals<T> terms{};
    void add(Vec<T> v) { terms += Totals<T>::of(v); }
    void end_run() {}
  };
  struct Sums {
    Totals<T> terms;
    explicit Sums(int) {}
    void put(int, const Sum& sum) { terms = sum.terms; }
    Totals<T> total() const { return terms; }
  };
  struct Maxima {
    Vec<T> row[1] = {splat<T>(-std::numeric_limits<T>::infinity())};
    Vec<T> all() const { return row[0]; }
  };

  static int64_t stride(int64_t) { return 0; }
  static int64_t rows(int64_t) { return kLanes<T>; }
  template <class F>
  static void each_row(const Group&, F f) {  // all of them at once
    f(0);
  }
  template <class F, class... End>
  static void each_vector(int64_t n, F f, End...) {
    for (int64_t c = 0; c < n; ++c) f(c * kLanes<T>, std::integral_constant<int64_t, kLanes<T>>{});
  }
  static Vec<T> pick(const Lanes<T>& x, int) { return x.all(); }
  static Vec<T> log(const Totals<T>& x) { return cpu::FEDASD_ISA::log<T>(x.narrow()); }
  static const Group& part(const Group& g, int) { return g; }

  struct In {
    const T* row[1] = {};
  };
  __attribute__((noinline)) static void load_tile(const Matrix& m, const Group& g, int64_t c0, int64_t n, bool,
                                                  T* buffer, In& in) {
    in.row[0] = buffer;
    if (m.type == kTypeOf<T> && m.col_stride == 1) {
      static const T absent[kLanes<T>] = {};
      for (int64_t c = 0; c < n; c += kLanes<T>) {
        const T* from[kLanes<T>];
        for (int r = 0; r < kLanes<T>; ++r)
          from[r] = g.valid(r) ? static_cast<const T*>(m.data) + g.at(r) * m.row_stride + c0 + c : absent;
        const int64_t columns = n - c < kLanes<T> ? n - c : kLanes<T>;
        T* to = buffer + c * kLanes<T>;
        transpose_square<T>([&](int r) { return load_partial<T>(from[r], columns, T(0)); }, [&](int i, Vec<T> v) {
          if (i < columns) store<T>(to + i * kLanes<T>, v);
        });
      }
      return;
    }
    visit(m.type, m.data, [&](auto* data) {
      for (int r = 0; r < kLanes<T>; ++r) {
        if (g.valid(r)) {
          auto* from = data + g.at(r) * m.row_stride + c0 * m.col_stride;
          for (int64_t c = 0; c < n; ++c) at(buffer, c, r) = T(to_float(from[c * m.col_stride]));
        } else {
          for (int64_t c = 0; c < n; ++c) at(buffer, c, r) = T(0);
        }
      }
    });
  }
  static void prefetch(const Matrix&, const Group&, int64_t) {}
  static T& at(T* tile, int64_t c, int r) { return tile[c * kLanes<T> + r]; }
  static T& at_copy(T* buffer, int64_t, int64_t c, int r) { return at(buffer, c, r); }
  static T* out_tile(void*, DType, int64_t, T* buffer) { return buffer; }
  template <class To>
  static void store_rows(To* out, const Group& g, int64_t row_classes, int64_t c0, int64_t n, const T* buffer) {
    if constexpr (std::is_same_v<To, T>) {
      T ignored[kLanes<T>];
      for (int64_t c = 0; c < n; c += kLanes<T>) {
        T* to[kLanes<T>];
        for (int r = 0; r < kLanes<T>; ++r) to[r] = g.valid(r) ? out + g.at(r) * row_classes + c0 + c : ignored;
        const int64_t columns = n - c < kLanes<T> ? n - c : kLanes<T>;
        const T* from = buffer + c * kLanes<T>;
        transpose_square<T>([&](int i) { return i < columns ? load<T>(from + i * kLanes<T>) : Vec<T>{}; },
                            [&](int r, Vec<T> v) { store_partial<T>(to[r], columns, v); });
      }
      return;
    }
    for (int r = 0; r < g.count; ++r) {
      if (g.label[r] < 0) continue;
      To* to = out + g.at(r) * row_classes + c0;
      for (int64_t c = 0; c < n; ++c) to[c] = from_float<To, T>(buffer[c * kLanes<T> + r]);
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

// f(class within the tile, r) for the rows whose true class lies in this tile.
template <class F>
inline void at_true_class(const Group& g, int64_t c0, int64_t n, F f) {
  for (int r = 0; r < g.count; ++r)
    if (g.label[r] >= c0 && g.label[r] < c0 + n) f(g.label[r] - c0, r);
}
