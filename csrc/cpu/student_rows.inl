// Row passes over the student's logits beside a teacher: the divergence, the cross-entropy, and their gradient.
// Included by isa.inl.

// What the last passes know of the rows of a group.
template <class T>
struct GroupConstants {
  Lanes<T> shift, inverse;
  Lanes<T> centre, mean;        // mean of x in two parts: centre + mean
  Lanes<T> asd;                 // lambda alpha / tau
  Lanes<T> ce_scale, ce_true;   // cross-entropy gradient: ce_scale exp(z') + ce_true [c == y]
  Lanes<T> t_shift, t_inverse;  // s = exp((t - t_shift) t_scale) t_inverse
};

// Of one row, or of all with one a lane.  Loops work on a copy: its fields then stay in registers.
template <class T, class L, bool logarithms, Divergence divergence, bool kept>
struct RowConstants {
  typename L::Each shift, inverse, centre, mean, asd, ce_scale, t_shift, t_inverse;
  T inv_tau, t_scale;
  const T *exps, *t_exps;  // if kept: exp(z'/tau) of the whole row, and exp(t'/tau) or null

  RowConstants(const GroupConstants<T>& g, int r)
      : shift(L::pick(g.shift, r)), inverse(L::pick(g.inverse, r)), centre(L::pick(g.centre, r)),
        mean(L::pick(g.mean, r)), asd(L::pick(g.asd, r)), ce_scale(L::pick(g.ce_scale, r)),
        t_shift(L::pick(g.t_shift, r)), t_inverse(L::pick(g.t_inverse, r)) {}

  template <class N>
  Vec<T> student_exp(Vec<T> shifted, int64_t i, N width) const {
    if constexpr (kept) return read<T>(exps + i, width);
    return scaled_exp<T>(shifted, inv_tau);
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
  template <class N>
  Vec<T> teacher_exp(Vec<T> v, int64_t i, N width) const {
    if constexpr (!logarithms) return v;
    if (kept && t_exps) return read<T>(t_exps + i, width);
    return scaled_exp<T>(v - t_shift, t_scale);
  }
  Vec<T> teacher_probability(Vec<T> e) const {
    if constexpr (!logarithms) return e;
    Vec<T> s = e * t_inverse;
    FEDASD_ROUNDED(s);
    return s;
  }
  // What the row's mean is taken of: log(q/s) up to a constant, or log(q/m); 0 where q is.
  template <class N>
  Vec<T> centred(Vec<T> shifted, Vec<T> q, Vec<T> v, int64_t i, N width) const {
    Vec<T> x;
    if constexpr (divergence == Divergence::reverse_kl) x = (student_log(shifted) - teacher_log(v)) - centre;
    else x = log_over_mean(q, teacher_probability(teacher_exp(v, i, width)) + q);
    return q == Vec<T>{} ? Vec<T>{} : x;
  }
  static Vec<T> log_over_mean(Vec<T> x, Vec<T> twice_mean) { return log<T>((x + x) / twice_mean); }
};

// The student's passes, with the teacher's rows (probabilities or logarithms) beside it.  kept: rows of one tile, whose
// exponentials stay in L1.
template <class T, class L, bool logarithms, Divergence divergence, Second ce, bool kept>
struct StudentPasses {
  using Constants = RowConstants<T, L, logarithms, divergence, kept>;
  const Options& o;
  Rows<T, L> rows;
  Reader<T, L> z, t;
  T *exps, *t_exps;  // of the group's rows
  GroupConstants<T> group;
  Totals<T> cross{};
  SoftmaxSums<T, L, ce, false> sums{};

  StudentPasses(const Options& options, const Rows<T, L>& rows_, Tiles<T>& tiles)
      : o(options), rows(rows_),
        z{rows.c.student, rows.own(), rows.c.classes, o.not_true, -std::numeric_limits<T>::infinity(), tiles.first},
        t{rows.c.teacher,
          rows.teacher(),
          rows.c.classes,
          o.not_true && logarithms,
          logarithms ? -std::numeric_limits<T>::infinity() : T(0),
          tiles.second},
        exps(tiles.exps), t_exps(teacher_exps<T, L>(rows.c)) {}

  void maximum() {
    if (kept && !raw()) L::prefetch(t.matrix, t.group, t.classes);
    group.shift = z.max();
  }

  void exponentials() {
    const int64_t stride = L::stride(z.classes);
    sums.over(z, group.shift, T(1 / o.temperature), T(1), [&](int r) { return exps + r * stride; });
  }

  // alpha and the number of rows are known: what is left of every class is multiplications.
  void coefficients(double asd_scale, T ce_weight) {
    const RowNumbers& numbers = rows.c.rows;
    group.inverse = (1 / sums.first).narrow();
    group.asd = (rows.get(numbers.weight) * asd_scale).narrow();
    rows.put(numbers.student_sum, sums.first);
    if constexpr (ce != Second::none) {
      const Vec<T> own_logit = rows.own_logits(rows.c.student, rows.own()), most = group.shift.all();
      Vec<T> top = most, scale = splat<T>(1), e{};
      if (o.not_true) {  // the sums leave the true class out: put it back, on the common maximum
        top = own_logit > most ? own_logit : most;
        scale = exp_nonpositive<T>(most - top);
        e = exp_nonpositive<T>(own_logit - top);
        sums.other = sums.other * Totals<T>::of(scale) + Totals<T>::of(e);
      }
      const Vec<T> inverse_ce = (1 / sums.other).narrow();
      group.ce_scale = scale * inverse_ce * ce_weight;
      group.ce_true = (e * inverse_ce - T(1)) * ce_weight;
      rows.put(numbers.ce_sum, sums.other);
      rows.put(numbers.ce_margin, Totals<T>::of(top) - Totals<T>::of(own_logit));
    }
    if (raw()) {
      group.t_shift = rows.get(numbers.teacher_shift).narrow();
      group.t_inverse = (1 / rows.get(numbers.teacher_sum)).narrow();
    } else {
      group.t_inverse = splat<T>(1);
    }
  }

  // reverse_kl and js: their gradient needs the row's mean first.
  void means() {
    if constexpr (divergence != Divergence::kl) {
      Totals<T> total_s = cross, total = mean_over_classes(total_s);
      if constexpr (divergence == Divergence::reverse_kl) {
        // x may be as large as the logits while its deviations are small: a second pass, centred on the
        // first, gives a mean whose error is that of the deviations.
        const Vec<T> first = total.narrow(), zero{};
        group.centre = first - first == zero ? first : zero;  // inf and NaN stay in the sum
        total = mean_over_classes(total_s);
        cross = total + Totals<T>::of(group.centre.all());
      } else {
        cross = (total + total_s) * 0.5;
      }
      group.mean = total.narrow();
    }
  }

  // sum q x; for js also sum s log(s/m).
  Totals<T> mean_over_classes(Totals<T>& total_s) {
    Totals<T> total{};
    z.each_tile([&](const typename L::In& student, int64_t c0, int64_t n) {
      const typename L::In& teacher = t.at(c0, n);
      typename L::Sums sums_q(rows.count), sums_s(rows.count);
      L::each_row(z.group, [&](int r) {
        const Constants k = constants(r);
        const T *const x = student.row[r], *const y = teacher.row[r];
        const T pad = z.pad, t_pad = t.pad;
        typename L::Sum sum, sum_s;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> shifted = read<T>(x + i, width, pad) - k.shift, v = read<T>(y + i, width, t_pad),
                       q = k.student_probability(k.student_exp(shifted, i, width));
          sum.add(q * k.centred(shifted, q, v, i, width));
          if constexpr (divergence == Divergence::js) {
            const Vec<T> s = k.teacher_probability(k.teacher_exp(v, i, width));
            sum_s.add(product_or_zero<T>(s, k.log_over_mean(s, s + q)));
          }
        }, [&] {
          sum.end_run();
          sum_s.end_run();
        });
        sums_q.put(r, sum);
        sums_s.put(r, sum_s);
      });
      total += sums_q.total();
      total_s += sums_s.total();
    });
    return total;
  }

  // The gradient of every class and, for kl, the sum over classes.
  void gradient(T* buffer) {
    const Client& c = rows.c;
    z.each_tile([&](const typename L::In& student, int64_t c0, int64_t n) {
      const typename L::In& teacher = t.at(c0, n);
      typename L::Sums sums_x(rows.count);
      L::each_row(z.group, [&](int r) {
        const Constants k = constants(r);
        const T *const x = student.row[r], *const y = teacher.row[r];
        T* const out = L::out_tile(c.gradient, c.student.type, (rows.begin + r) * c.classes + c0, buffer);
        const T pad = z.pad, t_pad = t.pad;
        typename L::Sum sum;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> shifted = read<T>(x + i, width, pad) - k.shift, v = read<T>(y + i, width, t_pad);
          const Vec<T> e = k.student_exp(shifted, i, width), q = k.student_probability(e);
          Vec<T> gradient;
          if constexpr (divergence == Divergence::kl) {
            // The sum takes s before it is normalised and rounded; the loss divides (client_loss.inl).
            const Vec<T> e_t = k.teacher_exp(v, i, width), log_q = k.student_log(shifted);
            sum.add(product_or_zero<T>(e_t, logarithms ? k.teacher_log(v) - log_q : -log_q));
            gradient = forward_kl_gradient(q, k.teacher_probability(e_t), k.asd);
          } else {
            gradient = centred_gradient(q, k.centred(shifted, q, v, i, width), k.mean, k.asd);
          }
          if constexpr (ce != Second::none) {
            FEDASD_ROUNDED(gradient);  // else it is the compiler's choice which of the two products is rounded
            gradient += second_exp<T, ce>(e, shifted, T(1)) * k.ce_scale;
          }
          write<T>(out + i, width, gradient);
        }, [&] { sum.end_run(); });
        sums_x.put(r, sum);
        if (!c.gradient) return;
        const Group part = L::part(z.group, r);
        if constexpr (ce != Second::none)
          at_true_class(part, c0, n,
                        [&](int64_t label, int at) { L::at(out, label, at) += group.ce_true.lane[r + at]; });
        if (out == buffer) store_tile<L>(c.gradient, c.student.type, part, c.classes, c0, n, buffer);
      });
      if constexpr (divergence == Divergence::kl) cross += sums_x.total();
    });
    rows.put(c.rows.cross, cross);
  }

  bool raw() const { return rows.c.teacher_rows == TeacherRows::logits; }

  Constants constants(int r) const {
    Constants k(group, r);
    k.inv_tau = T(1 / o.temperature);
    k.t_scale = raw() ? k.inv_tau : T(1);
    k.exps = exps + r * L::stride(z.classes);
    k.t_exps = t_exps ? t_exps + (rows.begin + r) * z.classes : nullptr;
    return k;
  }
};

template <class T, class L, bool logarithms, Divergence divergence, Second ce, bool kept>
void student_groups(const Client& c, const Options& o, int64_t begin, int64_t end) {
  Tiles<T> tiles;
  const double asd_scale = o.asd_weight / o.temperature * (divergence == Divergence::js ? 0.5 : 1.0);
  const T ce_weight = ce_weight_of_row<T>(c, o);
  each_group<T, L>(c, begin, end, c.gradient, c.student.type, [&](const Rows<T, L>& rows) {
    StudentPasses<T, L, logarithms, divergence, ce, kept> passes(o, rows, tiles);
    passes.maximum();
    passes.exponentials();
    passes.coefficients(asd_scale, ce_weight);
    passes.means();
    passes.gradient(tiles.out);
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
        auto run = [&](auto logarithms, auto kept) {
          student_groups<T, L, logarithms.value, d, second, kept.value>(c, o, begin, end);
        };
        with_flag(c.teacher_rows != TeacherRows::probabilities, [&](auto logarithms) {
          if constexpr (std::is_same_v<L, Transposed<T>>) run(logarithms, std::true_type{});
          else with_flag(c.classes <= L::classes, [&](auto kept) { run(logarithms, kept); });
        });
      });
    });
  });
}
