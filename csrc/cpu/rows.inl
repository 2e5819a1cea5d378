// Common parts of the row passes of the CPU loss kernels: reading rows tile by tile, softmax sums, blocks of rows.
//
// A row takes one pass for the maximum, one for the exponentials and their sums, and one for the gradient.  A row of at
// most one tile stays in L1 between them; a longer one is re-read from L2.  Included by isa.inl.

// A softmax at a second temperature needs no second exponential when it is the same or twice as cold:
// exp(x) = exp(x/2)^2, the case of tau = 2 beside the cross-entropy's and the entropy's 1.
enum class Second { none, same, square, other };

inline Second second_softmax(double temperature, double other) {
  return temperature == other ? Second::same : temperature == 2 * other ? Second::square : Second::other;
}

// exp(shifted * scale); the factor log2(e) is loop-invariant and costs nothing.
template <class T>
inline Vec<T> scaled_exp(Vec<T> shifted, T scale) {
  return exp2_nonpositive<T>(shifted * (scale * T(kLog2E)));
}

template <class T, Second second>
inline Vec<T> second_exp(Vec<T> e, Vec<T> shifted, T scale) {
  if constexpr (second == Second::same) return e;
  if constexpr (second == Second::square) return e * e;
  return scaled_exp<T>(shifted, scale);
}

// 0 where weight is 0, so that 0 * -inf of a masked class counts as nothing.
template <class T>
inline Vec<T> product_or_zero(Vec<T> weight, Vec<T> x) {
  return weight == Vec<T>{} ? Vec<T>{} : weight * x;
}

// A block is computed pass by pass, so that while one row waits for its horizontal sum the next is already
// being read.  Its rows share the tiles; rows longer than a tile come alone and are re-read in each pass.
constexpr int kBlock = 8;

template <class T>
struct Tiles {
  alignas(64) T first[kTile], second[kTile], exps[kTile], out[kTile];
};

// Some rows of the batch (one, or one a lane), and where the teacher has them.
template <class T, class L>
struct Rows {
  const Client& c;
  int64_t begin, row[L::rows], teacher_row[L::rows], label[L::rows];
  int count;

  Rows(const Client& client, int64_t first, int64_t end)
      : c(client), begin(first), count(int(end - first < L::rows ? end - first : L::rows)) {
    for (int r = 0; r < count; ++r) {
      row[r] = begin + r;
      teacher_row[r] = c.rows.teacher_row[begin + r];
      label[r] = c.rows.label[begin + r];
    }
  }
  Group own() const { return {row, label, count}; }
  Group teacher() const { return {teacher_row, label, count}; }

  // One number a row, 0 for absent and ignored rows.
  template <class F>
  typename L::Scalar gather(F f) const {
    T lanes[L::rows] = {};
    for (int r = 0; r < count; ++r)
      if (label[r] >= 0) lanes[r] = f(r);
    return L::scalar(lanes);
  }
  template <class V>
  void put(double* to, V value) const {
    L::put(to + begin, count, value);
  }
};

// A source of logits or probabilities, read tile by tile; a row of one tile is read once and kept.
template <class T, class L>
struct Reader {
  const Matrix& matrix;
  Group group;
  int64_t classes;
  bool exclude_true;  // give the true class the value `pad`
  T pad;
  T* buffer;
  typename L::In tile{};
  int64_t loaded = -1;

  const typename L::In& at(int64_t c0, int64_t n) {
    if (loaded == c0) return tile;
    tile = L::load_tile(matrix, group, c0, n, pad, exclude_true, buffer);
    if (exclude_true) at_true_class<L>(group, c0, n, buffer, [&](T& x, int) { x = pad; });
    loaded = c0;
    return tile;
  }
  template <class F>
  void each_tile(F f) {
    for (int64_t c0 = 0; c0 < classes; c0 += L::classes) {
      const int64_t n = classes - c0 < L::classes ? classes - c0 : L::classes;
      f(at(c0, n), c0, n);
    }
  }
  typename L::Scalar max() {
    Vec<T> best = splat<T>(-std::numeric_limits<T>::infinity());
    each_tile([&](const typename L::In& x, int64_t, int64_t n) {
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> v = x[i];
        best = v > best ? v : best;
      }
    });
    return L::max(best);
  }
};

// The sums of a softmax at tau and of a second one, over shifted logits; `exps` keeps the first's terms.
template <class T, class L, Second second, bool moment>
struct Sums {
  typename L::Total first{}, other{}, other_moment{};

  void over(Reader<T, L>& logits, typename L::Scalar shift, T scale, T other_scale, T* exps) {
    logits.each_tile([&](const typename L::In& x, int64_t, int64_t n) {
      typename L::Sum sum, sum_other, sum_moment;
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> shifted = x[i] - shift;
        const Vec<T> e = scaled_exp<T>(shifted, scale);
        store<T>(exps + i * kLanes<T>, e);
        sum.add(i, e);
        if constexpr (second != Second::none) {
          const Vec<T> e_other = second_exp<T, second>(e, shifted, other_scale);
          sum_other.add(i, e_other);
          if constexpr (moment) sum_moment.add(i, product_or_zero<T>(e_other, shifted));
        }
      }
      first += L::total(sum);
      other += L::total(sum_other);
      other_moment += L::total(sum_moment);
    });
  }
};

template <class Passes>
struct Block {
  std::optional<Passes> rows[kBlock];
  int count = 0;
  template <class... Args>
  void add(Args&&... args) {
    rows[count++].emplace(std::forward<Args>(args)...);
  }
  template <class F>
  void each(F f) {
    for (int i = 0; i < count; ++i) f(*rows[i]);
  }
};

// Cuts [begin, end) into blocks that fit the tiles and calls f(block_begin, block_end, tile_stride).
// An ignored row on its own is not computed: its numbers become neutral ones, and what it would have
// written (row i of `out`) becomes 0.
template <class T, class L, class F>
void each_block(const Client& c, int64_t begin, int64_t end, void* out, DType type, F f) {
  const RowNumbers& r = c.rows;
  const int64_t stride = c.classes >= L::classes ? kTile : L::vectors(c.classes) * kLanes<T>;
  const int64_t fits = kTile / stride < kBlock ? kTile / stride : kBlock;
  const int64_t bytes = c.classes * size_of(type);
  auto ignored = [&](int64_t i) { return L::rows == 1 && r.label[i] < 0; };
  for (int64_t i = begin; i < end;) {
    if (ignored(i)) {
      r.teacher_shift[i] = r.entropy_moment[i] = r.ce_margin[i] = r.cross[i] = 0;
      r.teacher_sum[i] = r.entropy_sum[i] = r.student_sum[i] = r.ce_sum[i] = 1;
      if (out) std::memset(static_cast<char*>(out) + i * bytes, 0, size_t(bytes));
      ++i;
      continue;
    }
    int64_t stop = i;
    for (int64_t k = 0; k < fits && stop < end && !ignored(stop); ++k) stop += L::rows;
    f(i, stop < end ? stop : end, stride);
    i = stop;
  }
}

// The mean over the valid rows gives each row the same weight.
template <class T>
inline T ce_weight_of_row(const Client& c, const Options& o) {
  return T(c.valid > 0 ? o.ce_weight / double(c.valid) : 0.0);
}

// Run-time options -> compiled variant.
template <class F>
void with_second(Second second, F f) {
  switch (second) {
    case Second::none: return f(std::integral_constant<Second, Second::none>{});
    case Second::same: return f(std::integral_constant<Second, Second::same>{});
    case Second::square: return f(std::integral_constant<Second, Second::square>{});
    case Second::other: return f(std::integral_constant<Second, Second::other>{});
  }
}
template <class F>
void with_divergence(Divergence divergence, F f) {
  switch (divergence) {
    case Divergence::kl: return f(std::integral_constant<Divergence, Divergence::kl>{});
    case Divergence::reverse_kl: return f(std::integral_constant<Divergence, Divergence::reverse_kl>{});
    case Divergence::js: return f(std::integral_constant<Divergence, Divergence::js>{});
  }
}
template <class F>
void with_layout(const Client& c, F f) {
  auto pick = [&](auto zero) {
    using T = decltype(zero);
    c.classes <= kTransposedClasses<T> ? f(zero, Transposed<T>{}) : f(zero, Across<T>{});
  };
  c.wide || c.student.type == DType::f64 ? pick(double{}) : pick(float{});
}
