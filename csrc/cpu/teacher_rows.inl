// Row passes over the teacher's logits: softmax sums, entropy, log weights, and the rows of a teacher cache.
// Included by isa.inl.

// The teacher's passes: its softmax sums and, with `cache`, the rows themselves and their sums s log s.
template <class T, class L, Second second>
struct TeacherPasses {
  const Options& o;
  Rows<T, L> rows;
  Reader<T, L> t;
  T inv_tau, inv_tau_h;
  T* exps;
  Lanes<T> shift{};
  SoftmaxSums<T, L, second, true> sums{};

  TeacherPasses(const Options& options, const Rows<T, L>& rows_, Tiles<T>& tiles)
      : o(options), rows(rows_),
        t{rows.c.teacher, rows.teacher(), rows.c.classes, o.not_true, -std::numeric_limits<T>::infinity(), tiles.first},
        inv_tau(T(1 / o.temperature)), inv_tau_h(T(1 / o.entropy_temperature)), exps(tiles.exps) {}

  void maximum() { shift = t.max(); }

  void exponentials() {
    const int64_t stride = L::stride(t.classes);
    if (T* const kept = teacher_exps<T, L>(rows.c))
      sums.over(t, shift, inv_tau, inv_tau_h, [&](int r) { return kept + (rows.begin + r) * t.classes; });
    else sums.over(t, shift, inv_tau, inv_tau_h, [&](int r) { return exps + r * stride; });
    if (second != Second::none && o.not_true) include_true_class();
    const RowNumbers& numbers = rows.c.rows;
    rows.put(numbers.teacher_shift, shift.all());
    rows.put(numbers.teacher_sum, sums.first);
    if (second == Second::none) return;
    rows.put(numbers.entropy_sum, sums.other);
    rows.put(numbers.entropy_moment, sums.other_moment);
  }

  // The entropy is over all classes: put the true class back, on the common maximum.
  void include_true_class() {
    const Vec<T> own_logit = rows.own_logits(rows.c.teacher, rows.teacher()), most = shift.all(), zero{};
    const Vec<T> top = own_logit > most ? own_logit : most;
    const Vec<T> rest = most - top, own = own_logit - top;
    const Vec<T> e = exp_nonpositive<T>(own * inv_tau_h);
    const auto scale = Totals<T>::of(exp_nonpositive<T>(rest * inv_tau_h));
    sums.other_moment =
        scale * (sums.other_moment + Totals<T>::of(rest) * sums.other) + Totals<T>::of(e == zero ? zero : e * own);
    sums.other = scale * sums.other + Totals<T>::of(e);
  }

  void write_cache(const CacheRows& cache, T* out) {
    Lanes<T> inverse, log_sum;
    inverse = (1 / sums.first).narrow();
    log_sum = L::log(sums.first);
    const bool kept = t.classes <= L::classes;
    const int64_t stride = L::stride(t.classes);
    Totals<T> mean{};
    t.each_tile([&](const typename L::In& tile, int64_t c0, int64_t n) {
      typename L::Sums sums_s(rows.count);
      L::each_row(t.group, [&](int r) {
        const typename L::Each top = L::pick(shift, r), scale = L::pick(inverse, r), log_scale = L::pick(log_sum, r);
        const T *const x = tile.row[r], *const e = exps + r * stride;
        const T pad = t.pad;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> shifted = read<T>(x + i, width, pad) - top;
          const Vec<T> s = (kept ? read<T>(e + i, width) : scaled_exp<T>(shifted, inv_tau)) * scale;
          write<T>(out + i, width, cache.logarithms ? shifted * inv_tau - log_scale : s);
        });
        const Group row = L::part(rows.own(), r);
        store_tile<L>(cache.data, cache.type, row, t.classes, c0, n, out);
        if (cache.logarithms) return;
        // The sum uses the row as it was stored, so that a student equal to the teacher has divergence 0
        // in every storage type.
        typename L::In stored;
        L::load_tile({cache.data, cache.type, t.classes, 1}, row, c0, n, true, out, stored);
        typename L::Sum sum;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> shifted = read<T>(x + i, width, pad) - top;
          sum.add(product_or_zero<T>(read<T>(stored.row[0] + i, width), shifted * inv_tau));
        }, [&] { sum.end_run(); });
        sums_s.put(r, sum);
      });
      mean += sums_s.total();
    });
    rows.put(rows.c.rows.cross, mean);
  }
};

template <class T, class L, Second second>
void teacher_groups(const Client& c, const Options& o, const CacheRows* cache, int64_t begin, int64_t end) {
  Tiles<T> tiles;
  each_group<T, L>(c, begin, end, cache ? cache->data : nullptr, cache ? cache->type : DType::f32,
                   [&](const Rows<T, L>& rows) {
    TeacherPasses<T, L, second> passes(o, rows, tiles);
    passes.maximum();
    passes.exponentials();
    if (cache) passes.write_cache(*cache, tiles.out);
  });
}

void teacher_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  const Second second = o.adaptive ? second_softmax(o.temperature, o.entropy_temperature) : Second::none;
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) {
      teacher_groups<decltype(zero), decltype(layout), decltype(kind)::value>(c, o, nullptr, begin, end);
    });
  });
}

void cache_rows(const Client& c, const Options& o, const CacheRows& cache, int64_t begin, int64_t end) {
  const Second second = second_softmax(o.temperature, o.entropy_temperature);
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) {
      teacher_groups<decltype(zero), decltype(layout), decltype(kind)::value>(c, o, &cache, begin, end);
    });
  });
}

// weight: log of the label proportion -> log weight.
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
