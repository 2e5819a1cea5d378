// Row passes over the teacher's logits: softmax sums, entropy, log weights, and the rows of a teacher cache.
// Included by isa.inl.

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
    const S own_logit =
        rows.gather([&](int r) { return element<T>(rows.c.teacher, rows.teacher_row[r], rows.label[r]); });
    const S top = own_logit > shift ? own_logit : shift;
    const S rest = shift - top, own = own_logit - top;
    const S e = L::exp(own * inv_tau_h), zero{};
    const auto scale = L::as_total(L::exp(rest * inv_tau_h));
    sums.other_moment =
        scale * (sums.other_moment + L::as_total(rest) * sums.other) + L::as_total(e == zero ? zero : e * own);
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

template <class T, class L, Second second>
void teacher_blocks(const Client& c, const Options& o, const CacheRows* cache, int64_t begin, int64_t end) {
  Tiles<T> tiles;
  each_block<T, L>(c, begin, end, cache ? cache->data : nullptr, cache ? cache->type : DType::f32,
                   [&](int64_t first, int64_t last, int64_t stride) {
    Block<TeacherPasses<T, L, second>> block;
    for (int64_t i = first; i < last; i += L::rows)
      block.add(c, o, i, last, tiles.first + block.count * stride, tiles.exps + block.count * stride);
    block.each([](auto& passes) { passes.maximum(); });
    block.each([](auto& passes) { passes.exponentials(); });
    if (cache) block.each([&](auto& passes) { passes.write(*cache, tiles.out); });
  });
}

void teacher_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  const Second second = o.adaptive ? second_softmax(o.temperature, o.entropy_temperature) : Second::none;
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) {
      teacher_blocks<decltype(zero), decltype(layout), decltype(kind)::value>(c, o, nullptr, begin, end);
    });
  });
}

void cache_rows(const Client& c, const Options& o, const CacheRows& cache, int64_t begin, int64_t end) {
  const Second second = second_softmax(o.temperature, o.entropy_temperature);
  with_layout(c, [&](auto zero, auto layout) {
    with_second(second, [&](auto kind) {
      teacher_blocks<decltype(zero), decltype(layout), decltype(kind)::value>(c, o, &cache, begin, end);
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
