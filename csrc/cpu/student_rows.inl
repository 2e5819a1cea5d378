// Row passes over the student's logits beside a teacher: the divergence, the cross-entropy, and their gradient.
// Included by isa.inl.

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
        t{c.teacher,
          rows.teacher(),
          c.classes,
          o.not_true && logarithms,
          logarithms ? -std::numeric_limits<T>::infinity() : T(0),
          second} {
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
        const Vec<T> shifted = student[i] - k.shift, q = k.student_probability(k.student_exp(shifted, i)),
                     v = teacher[i];
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
      if constexpr (ce != Second::none)
        at_true_class<L>(rows.own(), c0, n, out.data, [&](T& x, int r) { x += L::lane(k.ce_true, r); });
      if (out.data == buffer) store_tile<L>(c.gradient, c.student.type, rows.own(), c.classes, c0, n, buffer);
    });
    rows.put(c.rows.cross, cross);
  }
};

template <class T, class L, bool logarithms, Divergence divergence, Second ce>
void student_blocks(const Client& c, const Options& o, int64_t begin, int64_t end) {
  Tiles<T> tiles;
  const double asd_scale = o.asd_weight / o.temperature * (divergence == Divergence::js ? 0.5 : 1.0);
  const T ce_weight = ce_weight_of_row<T>(c, o);
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
