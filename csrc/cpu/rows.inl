// The row passes, compiled once for each instruction set (see kernels_*.cpp).
//
// One pass for the maxima, one for the exponentials and their sums, one for the gradient and the
// divergence's sum.  A row of at most one tile stays in L1 between them; a longer one is re-read from L2.

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
  void put(double* to, V value) const { L::put(to + begin, count, value); }
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

// The teacher's passes: its softmax sums and, with `cache`, the row itself and its sum s log s.
template <class T, class L, Second second>
struct TeacherPasses {
  using S = typename L::Scalar;
  const Options& o;
  Rows<T, L> rows;
  Reader<T, L> t;
  T inv_tau, inv_tau_h;
  T* exps;
  S shift{};
  Sums<T, L, second, true> sums;

  TeacherPasses(const Client& c, const Options& options, int64_t begin, int64_t end, T* buffer, T* exps_)
      : o(options), rows(c, begin, end),
        t{c.teacher, rows.teacher(), c.classes, o.not_true, -std::numeric_limits<T>::infinity(), buffer},
        inv_tau(T(1 / o.temperature)), inv_tau_h(T(1 / o.entropy_temperature)), exps(exps_) {}

  void maximum() { shift = t.max(); }

  void exponentials() {
    sums.over(t, shift, inv_tau, inv_tau_h, exps);
    if (second != Second::none && o.not_true) include_true_class();
    const RowNumbers& numbers = rows.c.rows;
    rows.put(numbers.teacher_shift, shift);
    rows.put(numbers.teacher_sum, sums.first);
    if (second == Second::none) return;
    rows.put(numbers.entropy_sum, sums.other);
    rows.put(numbers.entropy_moment, sums.other_moment);
  }

  // The entropy is over all classes: put the true class back, on the common maximum.
  void include_true_class() {
    const S own_logit = rows.gather([&](int r) { return element<T>(rows.c.teacher, rows.teacher_row[r], rows.label[r]); });
    const S top = own_logit > shift ? own_logit : shift;
    const S rest = shift - top, own = own_logit - top;
    const S e = L::exp(own * inv_tau_h), zero{};
    const auto scale = L::as_total(L::exp(rest * inv_tau_h));
    sums.other_moment = scale * (sums.other_moment + L::as_total(rest) * sums.other) + L::as_total(e == zero ? zero : e * own);
    sums.other = scale * sums.other + L::as_total(e);
  }

  void write(const CacheRows& cache, T* out) {
    const S inverse = L::narrow(1 / sums.first), log_sum = L::log(sums.first);
    const bool kept = t.classes <= L::classes;
    typename L::Total mean{};
    t.each_tile([&](const typename L::In& x, int64_t c0, int64_t n) {
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> shifted = x[i] - shift;
        const Vec<T> s = (kept ? load<T>(exps + i * kLanes<T>) : scaled_exp<T>(shifted, inv_tau)) * inverse;
        store<T>(out + i * kLanes<T>, cache.logarithms ? shifted * inv_tau - log_sum : s);
      }
      store_tile<L>(cache.data, cache.type, rows.own(), t.classes, c0, n, out);
      if (cache.logarithms) return;
      // The sum uses the row as it was stored, so that a student equal to the teacher has divergence 0
      // in every storage type.
      const Matrix stored{cache.data, cache.type, t.classes, 1};
      const typename L::In s = L::load_tile(stored, rows.own(), c0, n, T(0), true, out);
      typename L::Sum sum;
      for (int64_t i = 0; i < L::vectors(n); ++i) sum.add(i, product_or_zero<T>(s[i], (x[i] - shift) * inv_tau));
      mean += L::total(sum);
    });
    rows.put(rows.c.rows.cross, mean);
  }
};

// What the last passes know of a row.  Loops work on a copy: its fields then stay in registers, while a
// store through a pointer could change those of an object in memory.
template <class T, class L, bool logarithms, Divergence divergence>
struct RowConstants {
  using S = typename L::Scalar;
  S shift{}, inverse{};
  S centre{}, mean{};        // mean of x in two parts: centre + mean
  S asd{};                   // lambda alpha / tau
  S ce_scale{}, ce_true{};   // cross-entropy gradient: ce_scale exp(z') + ce_true [c == y]
  S t_shift{}, t_inverse{};  // s = exp((t - t_shift) t_scale) t_inverse
  T inv_tau = 1, t_scale = 1;
  const T* exps = nullptr;  // exp(z'/tau) of the whole row, or null

  Vec<T> student_exp(Vec<T> shifted, int64_t i) const {
    return exps ? load<T>(exps + i * kLanes<T>) : scaled_exp<T>(shifted, inv_tau);
  }
  Vec<T> student_probability(Vec<T> e) const {
    Vec<T> q = e * inverse;
    FEDASD_ROUNDED(q);
    return q;
  }
  // log q and log s up to a row constant (none for a cached teacher).
  Vec<T> student_log(Vec<T> shifted) const {
    Vec<T> x = shifted * inv_tau;
    FEDASD_ROUNDED(x);
    return x;
  }
  Vec<T> teacher_log(Vec<T> v) const {
    if constexpr (!logarithms) return log<T>(v);
    Vec<T> x = (v - t_shift) * t_scale;
    FEDASD_ROUNDED(x);
    return x;
  }
  // s times the teacher's sum (1 for a cached row).
  Vec<T> teacher_exp(Vec<T> v) const {
    if constexpr (logarithms) return scaled_exp<T>(v - t_shift, t_scale);
    return v;
  }
  Vec<T> teacher_probability(Vec<T> e) const {
    if constexpr (!logarithms) return e;
    Vec<T> s = e * t_inverse;
    FEDASD_ROUNDED(s);
    return s;
  }
  // What the row's mean is taken of: log(q/s) up to a constant, or log(q/m); 0 where q is.
  Vec<T> centred(Vec<T> shifted, Vec<T> q, Vec<T> v) const {
    Vec<T> x;
    if constexpr (divergence == Divergence::reverse_kl) x = (student_log(shifted) - teacher_log(v)) - centre;
    else x = log_over_mean(q, teacher_probability(teacher_exp(v)) + q);
    return q == Vec<T>{} ? Vec<T>{} : x;
  }
  static Vec<T> log_over_mean(Vec<T> x, Vec<T> twice_mean) { return log<T>((x + x) / twice_mean); }
};

// The student's passes, with the teacher's rows (probabilities or logarithms) beside it.
template <class T, class L, bool logarithms, Divergence divergence, Second ce>
struct StudentPasses {
  using S = typename L::Scalar;
  using Constants = RowConstants<T, L, logarithms, divergence>;
  const Options& o;
  Rows<T, L> rows;
  Reader<T, L> z, t;
  Constants row;
  typename L::Total cross{};
  Sums<T, L, ce, false> sums;

  StudentPasses(const Client& c, const Options& options, int64_t begin, int64_t end, T* first, T* second)
      : o(options), rows(c, begin, end),
        z{c.student, rows.own(), c.classes, o.not_true, -std::numeric_limits<T>::infinity(), first},
        t{c.teacher, rows.teacher(), c.classes, o.not_true && logarithms,
          logarithms ? -std::numeric_limits<T>::infinity() : T(0), second} {
    row.inv_tau = T(1 / o.temperature);
  }

  void maximum() { row.shift = z.max(); }

  void exponentials(T* exps) {
    sums.over(z, row.shift, row.inv_tau, T(1), exps);
    if (z.classes <= L::classes) row.exps = exps;
  }

  // alpha and the number of rows are known: what is left of every class is multiplications.
  void coefficients(double asd_scale, T ce_weight) {
    const RowNumbers& numbers = rows.c.rows;
    row.inverse = L::narrow(1 / sums.first);
    row.asd = rows.gather([&](int r) { return T(asd_scale * numbers.weight[rows.row[r]]); });
    rows.put(numbers.student_sum, sums.first);
    if constexpr (ce != Second::none) {
      const S own_logit = rows.gather([&](int r) { return element<T>(rows.c.student, rows.row[r], rows.label[r]); });
      S top = row.shift, scale = S{} + T(1), e{};
      if (o.not_true) {  // the sums leave the true class out: put it back, on the common maximum
        top = own_logit > row.shift ? own_logit : row.shift;
        scale = L::exp(row.shift - top);
        e = L::exp(own_logit - top);
        sums.other = sums.other * L::as_total(scale) + L::as_total(e);
      }
      const S inverse_ce = L::narrow(1 / sums.other);
      row.ce_scale = scale * inverse_ce * ce_weight;
      row.ce_true = (e * inverse_ce - T(1)) * ce_weight;
      rows.put(numbers.ce_sum, sums.other);
      L::put_difference(numbers.ce_margin + rows.begin, rows.count, top, own_logit);
    }
    if (rows.c.teacher_rows == TeacherRows::logits) {
      row.t_scale = row.inv_tau;
      row.t_shift = rows.gather([&](int r) { return T(numbers.teacher_shift[rows.row[r]]); });
      row.t_inverse = rows.gather([&](int r) { return T(1 / numbers.teacher_sum[rows.row[r]]); });
    } else {
      row.t_inverse = S{} + T(1);
    }
  }

  // reverse_kl and js: their gradient needs the row's mean first.
  void means() {
    if constexpr (divergence != Divergence::kl) {
      auto total_s = cross;
      auto total = mean_over_classes(total_s);
      if constexpr (divergence == Divergence::reverse_kl) {
        // x may be as large as the logits while its deviations are small: a second pass, centred on the
        // first, gives a mean whose error is that of the deviations.
        const S first = L::narrow(total), zero{};
        row.centre = first - first == zero ? first : zero;  // inf and NaN stay in the sum
        total = mean_over_classes(total_s);
        cross = total + L::as_total(row.centre);
      } else {
        cross = (total + total_s) * 0.5;
      }
      row.mean = L::narrow(total);
    }
  }

  // sum q x; for js also sum s log(s/m).
  typename L::Total mean_over_classes(typename L::Total& total_s) {
    const Constants k = row;
    typename L::Total total{};
    z.each_tile([&](const typename L::In& student, int64_t c0, int64_t n) {
      const typename L::In teacher = t.at(c0, n);
      typename L::Sum sum, sum_s;
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> shifted = student[i] - k.shift, q = k.student_probability(k.student_exp(shifted, i)), v = teacher[i];
        sum.add(i, q * k.centred(shifted, q, v));
        if constexpr (divergence == Divergence::js) {
          const Vec<T> s = k.teacher_probability(k.teacher_exp(v));
          sum_s.add(i, product_or_zero<T>(s, k.log_over_mean(s, s + q)));
        }
      }
      total += L::total(sum);
      total_s += L::total(sum_s);
    });
    return total;
  }

  // The gradient of every class and, for kl, the sum over classes.
  void gradient(T* buffer) {
    const Client& c = rows.c;
    const Constants k = row;
    const bool wanted = c.gradient != nullptr;
    z.each_tile([&](const typename L::In& tile, int64_t c0, int64_t n) {
      const typename L::In student = tile, teacher = t.at(c0, n);
      const typename L::Out out = L::out_tile(c.gradient, c.student.type, rows.begin * c.classes + c0, n, buffer);
      typename L::Sum sum;
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> shifted = student[i] - k.shift, v = teacher[i];
        const Vec<T> e = k.student_exp(shifted, i), q = k.student_probability(e);
        Vec<T> gradient;
        if constexpr (divergence == Divergence::kl) {
          // The sum takes s before it is normalised and rounded; finish() divides.
          const Vec<T> e_t = k.teacher_exp(v), x = k.student_log(shifted);
          sum.add(i, product_or_zero<T>(e_t, logarithms ? k.teacher_log(v) - x : -x));
          gradient = forward_kl_gradient(q, k.teacher_probability(e_t), k.asd);
        } else {
          gradient = centred_gradient(q, k.centred(shifted, q, v), k.mean, k.asd);
        }
        if constexpr (ce != Second::none) gradient += second_exp<T, ce>(e, shifted, T(1)) * k.ce_scale;
        if (wanted) out.put(i, gradient);
      }
      cross += L::total(sum);
      if (!wanted) return;
      if constexpr (ce != Second::none) at_true_class<L>(rows.own(), c0, n, out.data, [&](T& x, int r) { x += L::lane(k.ce_true, r); });
      if (out.data == buffer) store_tile<L>(c.gradient, c.student.type, rows.own(), c.classes, c0, n, buffer);
    });
    rows.put(c.rows.cross, cross);
  }
};

template <class Passes>
struct Block {
  std::optional<Passes> rows[kBlock];
  int count = 0;
  template <class... Args>
  void add(Args&&... args) { rows[count++].emplace(std::forward<Args>(args)...); }
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

template <class T, class L, Second second>
void teacher_blocks(const Client& c, const Options& o, const CacheRows* cache, int64_t begin, int64_t end) {
  Tiles<T> tiles;
  each_block<T, L>(c, begin, end, cache ? cache->data : nullptr, cache ? cache->type : DType::f32, [&](int64_t first, int64_t last, int64_t stride) {
    Block<TeacherPasses<T, L, second>> block;
    for (int64_t i = first; i < last; i += L::rows) block.add(c, o, i, last, tiles.first + block.count * stride, tiles.exps + block.count * stride);
    block.each([](auto& passes) { passes.maximum(); });
    block.each([](auto& passes) { passes.exponentials(); });
    if (cache) block.each([&](auto& passes) { passes.write(*cache, tiles.out); });
  });
}

template <class T, class L, bool logarithms, Divergence divergence, Second ce>
void student_blocks(const Client& c, const Options& o, int64_t begin, int64_t end) {
  Tiles<T> tiles;
  const double asd_scale = o.asd_weight / o.temperature * (divergence == Divergence::js ? 0.5 : 1.0);
  const T ce_weight = T(c.valid > 0 ? o.ce_weight / double(c.valid) : 0.0);
  each_block<T, L>(c, begin, end, c.gradient, c.student.type, [&](int64_t first, int64_t last, int64_t stride) {
    Block<StudentPasses<T, L, logarithms, divergence, ce>> block;
    for (int64_t i = first; i < last; i += L::rows) {
      const int64_t at = block.count * stride;
      block.add(c, o, i, last, tiles.first + at, tiles.second + at);
    }
    T* exps = tiles.exps;
    block.each([](auto& passes) { passes.maximum(); });
    block.each([&](auto& passes) { passes.exponentials(std::exchange(exps, exps + stride)); });
    block.each([&](auto& passes) { passes.coefficients(asd_scale, ce_weight); });
    block.each([](auto& passes) { passes.means(); });
    block.each([&](auto& passes) { passes.gradient(tiles.out); });
  });
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
  c.student.type == DType::f64 ? pick(double{}) : pick(float{});
}

void teacher_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  const Second second = o.adaptive ? second_softmax(o.temperature, o.entropy_temperature) : Second::none;
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) { teacher_blocks<decltype(zero), decltype(layout), decltype(kind)::value>(c, o, nullptr, begin, end); });
  });
}

void cache_rows(const Client& c, const Options& o, const CacheRows& cache, int64_t begin, int64_t end) {
  const Second second = second_softmax(o.temperature, o.entropy_temperature);
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) { teacher_blocks<decltype(zero), decltype(layout), decltype(kind)::value>(c, o, &cache, begin, end); });
  });
}

void student_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  const Second ce = o.ce_weight == 0 ? Second::none : second_softmax(o.temperature, 1.0);
  with_layout(c, [&](auto zero, auto layout) {
    with_second(ce, [&](auto kind) {
      with_divergence(o.divergence, [&](auto divergence) {
        using T = decltype(zero);
        using L = decltype(layout);
        constexpr Second second = decltype(kind)::value;
        constexpr Divergence d = decltype(divergence)::value;
        if (c.teacher_rows == TeacherRows::probabilities) student_blocks<T, L, false, d, second>(c, o, begin, end);
        else student_blocks<T, L, true, d, second>(c, o, begin, end);
      });
    });
  });
}

// weight: log share -> log weight.
void log_weights(const Client& c, const Options& o) {
  const RowNumbers& r = c.rows;
  double log_sum[256];
  for (int64_t begin = 0; begin < c.batch; begin += 256) {
    const int64_t n = c.batch - begin < 256 ? c.batch - begin : 256;
    std::memcpy(log_sum, r.entropy_sum + begin, size_t(n) * sizeof(double));
    log<double>(log_sum, n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = begin + i;
      const double h = entropy(log_sum[i], r.entropy_sum[row], r.entropy_moment[row], o.entropy_temperature);
      r.weight[row] = log_weight(h, r.weight[row], o.entropy_power, o.prior_power);
    }
  }
}

void finish_cache(const Client& c, const Options& o, const CacheRows& cache) {
  const RowNumbers& r = c.rows;
  log_weights(c, o);
  log<double>(r.teacher_sum, c.batch);
  for (int64_t i = 0; i < c.batch; ++i) r.constant[i] = cache.logarithms ? 0 : r.cross[i] - r.teacher_sum[i];
}

// weight -> alpha, over the valid rows in their order; the teacher's constant of each divergence.
void normalise(const Client& c, const Options& o) {
  const RowNumbers& r = c.rows;
  if (c.teacher_rows == TeacherRows::logits) {
    std::memcpy(r.constant, r.teacher_sum, size_t(c.batch) * sizeof(double));
    log<double>(r.constant, c.batch);
    if (o.divergence == Divergence::kl)
      for (int64_t i = 0; i < c.batch; ++i) r.constant[i] = -r.constant[i];
    if (o.adaptive) log_weights(c, o);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  double top = -infinity, sum = 0;
  for (int64_t i = 0; i < c.batch; ++i) {
    if (c.rows.label[i] < 0) r.weight[i] = -infinity;
    else if (!o.adaptive) r.weight[i] = 0;
    top = r.weight[i] > top ? r.weight[i] : top;
  }
  if (top == -infinity) top = 0;  // no valid row: every weight becomes 0
  for (int64_t i = 0; i < c.batch; ++i) r.weight[i] -= top;
  exp_nonpositive<double>(r.weight, c.batch);
  for (int64_t i = 0; i < c.batch; ++i) sum += r.weight[i];
  for (int64_t i = 0; i < c.batch; ++i) r.weight[i] = sum > 0 ? r.weight[i] / sum : r.weight[i] * sum;
}

double finish(const Client& c, const Options& o) {
  const RowNumbers& r = c.rows;
  log<double>(r.student_sum, c.batch);
  if (o.ce_weight != 0) log<double>(r.ce_sum, c.batch);
  const bool raw = c.teacher_rows == TeacherRows::logits;
  double asd = 0, ce = 0;
  for (int64_t i = 0; i < c.batch; ++i) {
    if (r.label[i] < 0) continue;
    double d = r.cross[i];
    if (o.divergence == Divergence::kl) d = forward_kl(raw ? r.cross[i] / r.teacher_sum[i] : r.cross[i], r.constant[i], r.student_sum[i]);
    if (o.divergence == Divergence::reverse_kl) d = reverse_kl(r.cross[i], r.constant[i], r.student_sum[i]);
    asd += r.weight[i] * (d < 0 ? 0 : d);  // a divergence is not negative; only rounding makes it so
    if (o.ce_weight != 0) ce += r.ce_sum[i] + r.ce_margin[i];
  }
  double loss = 0;
  if (o.asd_weight != 0) loss += o.asd_weight * asd;
  if (o.ce_weight != 0 && c.valid > 0) loss += o.ce_weight * ce / double(c.valid);
  return loss;
}
