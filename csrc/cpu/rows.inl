// Common parts of the row passes of the CPU loss kernels: reading rows tile by tile, softmax sums, groups of rows.
//
// A group of rows takes one pass for the maximum, one for the exponentials and their sums, and one for the gradient.
// Rows of at most one tile stay in L1 between them; a longer one comes alone and is re-read from L2.
// Included by isa.inl.

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

// Where a group's rows are copied, and what is kept of them from pass to pass.
template <class T>
struct Tiles {
  alignas(64) T first[kBuffer], second[kBuffer], exps[kBuffer], out[kTile];
};

// The rows of one group, and where the teacher has them.
template <class T, class L>
struct Rows {
  const Client& c;
  int64_t begin;
  int count;

  Group own() const { return {begin, nullptr, c.rows.label + begin, count}; }
  Group teacher() const { return {0, c.rows.teacher_row + begin, c.rows.label + begin, count}; }

  Totals<T> get(const double* from) const { return Totals<T>::read(from + begin, count); }
  void put(double* to, const Totals<T>& value) const { value.write(to + begin, count); }
  void put(double* to, Vec<T> value) const { put(to, Totals<T>::of(value)); }

  // The logit of each row's true class, 0 for absent and ignored rows.
  static Vec<T> own_logits(const Matrix& m, const Group& g) {
    Lanes<T> logits;
    for (int r = 0; r < g.count; ++r)
      if (g.label[r] >= 0) logits.lane[r] = element<T>(m, g.at(r), g.label[r]);
    return logits.all();
  }
};

// A source of logits or probabilities, read tile by tile; rows of one tile are read once and kept.
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
    L::load_tile(matrix, group, c0, n, exclude_true, buffer, tile);
    if (exclude_true) at_true_class(group, c0, n, [&](int64_t c, int r) { L::at_copy(buffer, n, c, r) = pad; });
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
  Vec<T> max() {
    typename L::Maxima maxima;
    each_tile([&](const typename L::In& tile_, int64_t, int64_t n) {
      L::each_row(group, [&](int r) {
        const T* const x = tile_.row[r];
        Vec<T> best = maxima.row[r];
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> v = read<T>(x + i, width, pad);
          best = v > best ? v : best;
        });
        maxima.row[r] = best;
      });
    });
    return maxima.all();
  }
};

// The sums of a softmax at tau and of a second one, over shifted logits.
template <class T, class L, Second second, bool moment>
struct SoftmaxSums {
  Totals<T> first{}, other{}, other_moment{};

  // keep(r): where the first's terms of row r of this tile go.
  template <class Keep>
  void over(Reader<T, L>& logits, const Lanes<T>& shift, T scale, T other_scale, Keep keep) {
    logits.each_tile([&](const typename L::In& tile, int64_t, int64_t n) {
      const int count = logits.group.count;
      typename L::Sums sums(count), sums_other(count), sums_moment(count);
      L::each_row(logits.group, [&](int r) {
        const typename L::Each top = L::pick(shift, r);
        const T* const x = tile.row[r];
        T* const exps = keep(r);
        const T pad = logits.pad;
        typename L::Sum sum, sum_other, sum_moment;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> shifted = read<T>(x + i, width, pad) - top;
          const Vec<T> e = scaled_exp<T>(shifted, scale);
          write<T>(exps + i, width, e);
          sum.add(e);
          if constexpr (second != Second::none) {
            const Vec<T> e_other = second_exp<T, second>(e, shifted, other_scale);
            sum_other.add(e_other);
            if constexpr (moment) sum_moment.add(product_or_zero<T>(e_other, shifted));
          }
        }, [&] {
          sum.end_run();
          sum_other.end_run();
          sum_moment.end_run();
        });
        sums.put(r, sum);
        if constexpr (second != Second::none) sums_other.put(r, sum_other);
        if constexpr (second != Second::none && moment) sums_moment.put(r, sum_moment);
      });
      first += sums.total();
      if constexpr (second != Second::none) other += sums_other.total();
      if constexpr (second != Second::none && moment) other_moment += sums_moment.total();
    });
  }
};

// Cuts [begin, end) into groups and calls f(rows).  The numbers of an ignored row become neutral ones, and what it
// would have written (row i of `out`) becomes 0.
template <class T, class L, class F>
void each_group(const Client& c, int64_t begin, int64_t end, void* out, DType type, F f) {
  const RowNumbers& r = c.rows;
  const int64_t rows = L::rows(c.classes), bytes = c.classes * size_of(type);
  for (int64_t i = begin; i < end; i += rows) {
    const int64_t stop = end - i < rows ? end : i + rows;
    f(Rows<T, L>{c, i, int(stop - i)});
    for (int64_t k = i; k < stop; ++k) {
      if (r.label[k] >= 0) continue;
      r.teacher_shift[k] = r.entropy_moment[k] = r.ce_margin[k] = r.cross[k] = 0;
      r.teacher_sum[k] = r.entropy_sum[k] = r.student_sum[k] = r.ce_sum[k] = 1;
      if (out) std::memset(static_cast<char*>(out) + k * bytes, 0, size_t(bytes));
    }
  }
}

// A raw teacher's exponentials are needed in two passes.  Rows of one tile keep them in between where the gradient is
// going to be, if that is of the compute type.
template <class T, class L>
inline T* teacher_exps(const Client& c) {
  const bool kept = std::is_same_v<L, Across<T>> && c.teacher_rows == TeacherRows::logits && c.classes <= L::classes &&
                    c.student.type == kTypeOf<T>;
  return kept ? static_cast<T*>(c.gradient) : nullptr;
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
