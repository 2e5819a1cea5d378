// The row passes, compiled once for each instruction set (see kernels_*.cpp).
//
// For a group of rows: one pass for the maxima, one for the exponentials and their sums, one for the
// gradient and the divergence's sum.  A row of at most one tile is read from memory once and stays in
// L1; a longer one is re-read tile by tile from L2.

// A softmax at a second temperature needs no second exponential when it is the same or twice as cold:
// exp(x) = exp(x/2)^2, the case of tau = 2 beside the cross-entropy's and the entropy's 1.
enum class Second { none, same, square, other };

inline Second second_softmax(double temperature, double other) {
  return temperature == other ? Second::same : temperature == 2 * other ? Second::square : Second::other;
}

template <class T, Second second>
inline Vec<T> second_exp(Vec<T> e, Vec<T> shifted, T scale) {
  if constexpr (second == Second::same) return e;
  if constexpr (second == Second::square) return e * e;
  return exp_nonpositive<T>(shifted * scale);
}

// 0 where weight is 0, so that 0 * -inf of a masked class counts as nothing.
template <class T>
inline Vec<T> product_or_zero(Vec<T> weight, Vec<T> x) {
  return weight == Vec<T>{} ? Vec<T>{} : weight * x;
}

template <class T>
struct Tiles {
  alignas(64) T first[kTile], second[kTile], exps[kTile], out[kTile];
};

// The rows [begin, begin + count) of the batch, and where the teacher has them.
template <class L>
struct Rows {
  int64_t row[L::rows], teacher_row[L::rows], label[L::rows];
  int count;
  Rows(const Client& c, int64_t begin, int64_t end) : count(int(end - begin < L::rows ? end - begin : L::rows)) {
    for (int r = 0; r < count; ++r) {
      row[r] = begin + r;
      teacher_row[r] = c.rows.teacher_row[begin + r];
      label[r] = c.rows.label[begin + r];
    }
  }
  Group own() const { return {row, label, count}; }
  Group teacher() const { return {teacher_row, label, count}; }
  // One number a row, 0 for absent rows.
  template <class F>
  typename L::Scalar gather(F f) const {
    decltype(f(0)) lanes[L::rows] = {};
    for (int r = 0; r < count; ++r)
      if (label[r] >= 0) lanes[r] = f(r);
    return L::scalar(lanes);
  }
};

template <class T, class L>
__attribute__((noinline)) typename L::Scalar row_max(const Matrix& m, const Group& g, int64_t classes, bool not_true, T* buffer, const T*& tile) {
  const T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> best = splat<T>(lowest);
  for (int64_t c0 = 0; c0 < classes; c0 += L::classes) {
    const int64_t n = classes - c0 < L::classes ? classes - c0 : L::classes;
    tile = L::load_tile(m, g, c0, n, lowest, not_true, buffer);
    if (not_true) at_true_class<L>(g, c0, n, buffer, [&](T& x, int) { x = lowest; });
    for (int64_t i = 0; i < L::vectors(n); ++i) {
      const Vec<T> v = load<T>(tile + i * kLanes<T>);
      best = v > best ? v : best;
    }
  }
  return L::max(best);
}

// Passes 1 and 2 over the teacher's logits; with `cache`, also the row itself and its sum s log s.
template <class T, class L, Second second>
void teacher_group(const Client& c, const Options& o, const CacheRows* cache, int64_t begin, int64_t end) {
  using S = typename L::Scalar;
  Tiles<T> tiles;
  const Rows<L> rows(c, begin, end);
  const Group g = rows.teacher();
  const T inv_tau = T(1 / o.temperature), inv_tau_h = T(1 / o.entropy_temperature);
  const T lowest = -std::numeric_limits<T>::infinity();
  const bool one_tile = c.classes <= L::classes;

  const T* t = nullptr;
  const S shift = row_max<T, L>(c.teacher, g, c.classes, o.not_true, tiles.first, t);
  auto reload = [&](int64_t c0, int64_t n) {
    if (one_tile) return;
    t = L::load_tile(c.teacher, g, c0, n, lowest, o.not_true, tiles.first);
    if (o.not_true) at_true_class<L>(g, c0, n, tiles.first, [&](T& x, int) { x = lowest; });
  };

  typename L::Total total{}, total_h{}, moment{};
  for (int64_t c0 = 0; c0 < c.classes; c0 += L::classes) {
    const int64_t n = c.classes - c0 < L::classes ? c.classes - c0 : L::classes;
    reload(c0, n);
    Vec<T> sum{}, sum_h{}, sum_moment{};
    for (int64_t i = 0; i < L::vectors(n); ++i) {
      const Vec<T> x = load<T>(t + i * kLanes<T>) - shift;
      const Vec<T> e = exp_nonpositive<T>(x * inv_tau);
      store<T>(tiles.exps + i * kLanes<T>, e);
      sum += e;
      if constexpr (second != Second::none) {
        const Vec<T> e_h = second_exp<T, second>(e, x, inv_tau_h);
        sum_h += e_h;
        sum_moment += product_or_zero<T>(e_h, x);
      }
    }
    total += L::sum(sum);
    total_h += L::sum(sum_h);
    moment += L::sum(sum_moment);
  }
  if (second != Second::none && o.not_true) {
    // The entropy is over all classes: put the true class back, on the common maximum.
    const S true_logit = rows.gather([&](int r) { return element<T>(c.teacher, rows.teacher_row[r], rows.label[r]); });
    const S top = true_logit > shift ? true_logit : shift;
    const S rest = shift - top, own = true_logit - top;
    const S scale = L::exp(rest * inv_tau_h), e = L::exp(own * inv_tau_h);
    const S zero{};
    moment = scale * (moment + rest * total_h) + (e == zero ? zero : e * own);
    total_h = scale * total_h + e;
  }
  L::put(c.rows.teacher_shift + begin, rows.count, shift);
  L::put(c.rows.teacher_sum + begin, rows.count, total);
  if (second != Second::none) {
    L::put(c.rows.entropy_sum + begin, rows.count, total_h);
    L::put(c.rows.entropy_moment + begin, rows.count, moment);
  }
  if (!cache) return;

  const S inverse = S(1 / total);
  const S log_sum = L::log(total);
  typename L::Total mean{};
  for (int64_t c0 = 0; c0 < c.classes; c0 += L::classes) {
    const int64_t n = c.classes - c0 < L::classes ? c.classes - c0 : L::classes;
    reload(c0, n);
    for (int64_t i = 0; i < L::vectors(n); ++i) {
      const Vec<T> x = (load<T>(t + i * kLanes<T>) - shift) * inv_tau;
      Vec<T> s = (one_tile ? load<T>(tiles.exps + i * kLanes<T>) : exp_nonpositive<T>(x)) * inverse;
      store<T>(tiles.out + i * kLanes<T>, cache->logarithms ? x - log_sum : s);
    }
    store_tile<L>(cache->data, cache->type, rows.own(), c.classes, c0, n, tiles.out);
    // The sum uses the row as it was stored, so that a student equal to the teacher has divergence 0
    // in every storage type.
    if (cache->logarithms) continue;
    const Matrix stored{cache->data, cache->type, c.classes, 1};
    const T* s = L::load_tile(stored, rows.own(), c0, n, T(0), false, tiles.out);
    Vec<T> sum{};
    for (int64_t i = 0; i < L::vectors(n); ++i) {
      const Vec<T> x = (load<T>(t + i * kLanes<T>) - shift) * inv_tau;
      sum += product_or_zero<T>(load<T>(s + i * kLanes<T>), x);
    }
    mean += L::sum(sum);
  }
  L::put(c.rows.cross + begin, rows.count, mean);
}

// All three passes over the student, with the teacher's rows beside it.
template <class T, class L, bool logarithms, Divergence divergence, Second ce>
void student_group(const Client& c, const Options& o, int64_t begin, int64_t end) {
  using S = typename L::Scalar;
  Tiles<T> tiles;
  const Rows<L> rows(c, begin, end);
  const Group own = rows.own(), teacher = rows.teacher();
  const T inv_tau = T(1 / o.temperature);
  const T lowest = -std::numeric_limits<T>::infinity();
  const bool one_tile = c.classes <= L::classes;
  const bool raw = c.teacher_rows == TeacherRows::logits;

  // 1. maximum
  const T* z = nullptr;
  const S shift = row_max<T, L>(c.student, own, c.classes, o.not_true, tiles.first, z);
  auto reload_student = [&](int64_t c0, int64_t n) {
    if (one_tile) return;
    z = L::load_tile(c.student, own, c0, n, lowest, o.not_true, tiles.first);
    if (o.not_true) at_true_class<L>(own, c0, n, tiles.first, [&](T& x, int) { x = lowest; });
  };

  // 2. exponentials
  typename L::Total total{}, total_ce{};
  for (int64_t c0 = 0; c0 < c.classes; c0 += L::classes) {
    const int64_t n = c.classes - c0 < L::classes ? c.classes - c0 : L::classes;
    reload_student(c0, n);
    Vec<T> sum{}, sum_ce{};
    for (int64_t i = 0; i < L::vectors(n); ++i) {
      const Vec<T> x = load<T>(z + i * kLanes<T>) - shift;
      const Vec<T> e = exp_nonpositive<T>(x * inv_tau);
      store<T>(tiles.exps + i * kLanes<T>, e);
      sum += e;
      if constexpr (ce != Second::none) sum_ce += second_exp<T, ce>(e, x, T(1));
    }
    total += L::sum(sum);
    total_ce += L::sum(sum_ce);
  }

  // Row coefficients.  alpha and the counts are known, so each class needs only multiplications.
  const S inverse = S(1 / total);
  const S asd = rows.gather([&](int r) {
    const double half = divergence == Divergence::js ? 0.5 : 1.0;
    return T(o.asd_weight * c.rows.weight[rows.row[r]] * half / o.temperature);
  });
  const T ce_weight = T(c.valid > 0 ? o.ce_weight / double(c.valid) : 0.0);
  S ce_scale{}, ce_true{};  // gradient of the cross-entropy: ce_scale exp(z') + ce_true [c == y]
  if constexpr (ce != Second::none) {
    const S true_logit = rows.gather([&](int r) { return element<T>(c.student, rows.row[r], rows.label[r]); });
    S top = shift, scale = S{} + T(1), e = S{};
    if (o.not_true) {  // the sums above leave the true class out; put it back, on the common maximum
      top = true_logit > shift ? true_logit : shift;
      scale = L::exp(shift - top);
      e = L::exp(true_logit - top);
      total_ce = total_ce * scale + e;
    }
    const S inverse_ce = S(1 / total_ce);
    ce_scale = scale * inverse_ce * ce_weight;
    ce_true = (e * inverse_ce - T(1)) * ce_weight;
    L::put(c.rows.ce_sum + begin, rows.count, total_ce);
    L::put_difference(c.rows.ce_margin + begin, rows.count, top, true_logit);
  }
  L::put(c.rows.student_sum + begin, rows.count, total);

  // The teacher's row: s and, up to a row constant, log s.
  const T teacher_scale = raw ? inv_tau : T(1);
  const S teacher_shift = raw ? rows.gather([&](int r) { return T(c.rows.teacher_shift[rows.row[r]]); }) : S{};
  const S teacher_inverse = raw ? rows.gather([&](int r) { return T(1 / c.rows.teacher_sum[rows.row[r]]); }) : S{} + T(1);
  const T* t = nullptr;
  auto load_teacher = [&](int64_t c0, int64_t n) {
    const bool exclude = o.not_true && logarithms;
    t = L::load_tile(c.teacher, teacher, c0, n, logarithms ? lowest : T(0), exclude, tiles.second);
    if (exclude) at_true_class<L>(teacher, c0, n, tiles.second, [&](T& x, int) { x = lowest; });
  };
  auto log_s = [&](int64_t i) -> Vec<T> {
    const Vec<T> v = load<T>(t + i * kLanes<T>);
    if constexpr (logarithms) return (v - teacher_shift) * teacher_scale;
    return log<T>(v);
  };
  auto probability = [&](int64_t i) -> Vec<T> {
    if constexpr (!logarithms) return load<T>(t + i * kLanes<T>);
    Vec<T> s = exp_nonpositive<T>(log_s(i)) * teacher_inverse;
    FEDASD_ROUNDED(s);
    return s;
  };
  auto shifted = [&](int64_t i) -> Vec<T> { return (load<T>(z + i * kLanes<T>) - shift); };
  auto student_exp = [&](int64_t i) -> Vec<T> {
    return one_tile ? load<T>(tiles.exps + i * kLanes<T>) : exp_nonpositive<T>(shifted(i) * inv_tau);
  };
  auto student_probability = [&](Vec<T> e) -> Vec<T> {
    Vec<T> q = e * inverse;
    FEDASD_ROUNDED(q);
    return q;
  };
  // log(x / m) with m the mean of s and q; 0 where x is 0, so that x log(x/m) is.
  auto log_over_mean = [&](Vec<T> x, Vec<T> s, Vec<T> q) -> Vec<T> {
    const Vec<T> ratio = (x + x) / (s + q);
    return x == Vec<T>{} ? Vec<T>{} : log<T>(ratio);
  };
  // reverse_kl: log(q/s) up to a row constant.
  auto log_ratio = [&](int64_t i, Vec<T> q) -> Vec<T> {
    return q == Vec<T>{} ? Vec<T>{} : shifted(i) * inv_tau - log_s(i);
  };
  auto each_tile = [&](auto f) {
    for (int64_t c0 = 0; c0 < c.classes; c0 += L::classes) {
      const int64_t n = c.classes - c0 < L::classes ? c.classes - c0 : L::classes;
      reload_student(c0, n);
      load_teacher(c0, n);
      f(c0, n);
    }
  };

  // reverse_kl and js: their gradient needs the row's mean first.
  typename L::Total cross{};
  S mean{};
  if constexpr (divergence != Divergence::kl) {
    typename L::Total total_mean{};
    each_tile([&](int64_t, int64_t n) {
      Vec<T> sum{}, sum_s{};
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> q = student_probability(student_exp(i));
        if constexpr (divergence == Divergence::reverse_kl) {
          sum += product_or_zero<T>(q, log_ratio(i, q));
        } else {
          const Vec<T> s = probability(i);
          sum += q * log_over_mean(q, s, q);
          sum_s += s * log_over_mean(s, s, q);
        }
      }
      total_mean += L::sum(sum);
      cross += L::sum(sum_s);
    });
    mean = S(total_mean);
    if constexpr (divergence == Divergence::reverse_kl) cross = total_mean;
    if constexpr (divergence == Divergence::js) cross = (cross + total_mean) * T(0.5);
  }

  // 3. gradient, and for kl the sum over classes
  if (divergence == Divergence::kl || c.gradient) {
    each_tile([&](int64_t c0, int64_t n) {
      T* out = L::gradient_tile(c.gradient, c.student.type, begin * c.classes + c0, n, tiles.out);
      Vec<T> sum{};
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> e = student_exp(i);
        const Vec<T> q = student_probability(e);
        Vec<T> gradient;
        if constexpr (divergence == Divergence::kl) {
          const Vec<T> s = probability(i);
          const Vec<T> x = shifted(i) * inv_tau;
          if constexpr (logarithms) sum += product_or_zero<T>(s, log_s(i) - x);
          else sum -= product_or_zero<T>(s, x);
          gradient = forward_kl_gradient(q, s, asd);
        } else if constexpr (divergence == Divergence::reverse_kl) {
          gradient = centred_gradient(q, log_ratio(i, q), mean, asd);
        } else {
          gradient = centred_gradient(q, log_over_mean(q, probability(i), q), mean, asd);
        }
        if constexpr (ce != Second::none) gradient += second_exp<T, ce>(e, shifted(i), T(1)) * ce_scale;
        if (c.gradient) store<T>(out + i * kLanes<T>, gradient);
      }
      cross += L::sum(sum);
      if (!c.gradient) return;
      if constexpr (ce != Second::none) at_true_class<L>(own, c0, n, out, [&](T& x, int r) { x += L::lane(ce_true, r); });
      store_tile<L>(c.gradient, c.student.type, own, c.classes, c0, n, out);
    });
  }
  L::put(c.rows.cross + begin, rows.count, cross);
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

// Groups of rows.  An ignored row on its own is not computed: its numbers become neutral ones and what
// it would have written (row `i` of `out`) becomes 0.
template <class L, class F>
void each_group(const Client& c, int64_t begin, int64_t end, void* out, DType type, F f) {
  const RowNumbers& r = c.rows;
  const int64_t bytes = c.classes * size_of(type);
  for (int64_t i = begin; i < end; i += L::rows) {
    if (L::rows > 1 || r.label[i] >= 0) {
      f(i, end);
      continue;
    }
    r.teacher_shift[i] = r.entropy_moment[i] = r.ce_margin[i] = r.cross[i] = 0;
    r.teacher_sum[i] = r.entropy_sum[i] = r.student_sum[i] = r.ce_sum[i] = 1;
    if (out) std::memset(static_cast<char*>(out) + i * bytes, 0, size_t(bytes));
  }
}

void teacher_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  const Second second = o.adaptive ? second_softmax(o.temperature, o.entropy_temperature) : Second::none;
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) {
      using L = decltype(layout);
      each_group<L>(c, begin, end, nullptr, DType::f32, [&](int64_t i, int64_t stop) {
        teacher_group<decltype(zero), L, decltype(kind)::value>(c, o, nullptr, i, stop);
      });
    });
  });
}

void cache_rows(const Client& c, const Options& o, const CacheRows& cache, int64_t begin, int64_t end) {
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second_softmax(o.temperature, o.entropy_temperature), [&](auto kind) {
      using L = decltype(layout);
      each_group<L>(c, begin, end, cache.data, cache.type, [&](int64_t i, int64_t stop) {
        teacher_group<decltype(zero), L, decltype(kind)::value>(c, o, &cache, i, stop);
      });
    });
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
        each_group<L>(c, begin, end, c.gradient, c.student.type, [&](int64_t i, int64_t stop) {
          c.teacher_rows == TeacherRows::probabilities ? student_group<T, L, false, d, second>(c, o, i, stop)
                                                       : student_group<T, L, true, d, second>(c, o, i, stop);
        });
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
      r.weight[row] = log_weight(h, r.weight[row], o);
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
  double asd = 0, ce = 0;
  for (int64_t i = 0; i < c.batch; ++i) {
    if (r.label[i] < 0) continue;
    double d = r.cross[i];
    if (o.divergence == Divergence::kl) d = forward_kl(r.cross[i], r.constant[i], r.student_sum[i]);
    if (o.divergence == Divergence::reverse_kl) d = reverse_kl(r.cross[i], r.constant[i], r.student_sum[i]);
    asd += r.weight[i] * (d < 0 ? 0 : d);  // a divergence is not negative; only rounding makes it so
    if (o.ce_weight != 0) ce += r.ce_sum[i] + r.ce_margin[i];
  }
  double loss = 0;
  if (o.asd_weight != 0) loss += o.asd_weight * asd;
  if (o.ce_weight != 0 && c.valid > 0) loss += o.ce_weight * ce / double(c.valid);
  return loss;
}
