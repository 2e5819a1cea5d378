// Row passes of the cross-entropy alone, for clients without a teacher.  Included by isa.inl.

// exp(x) as the square of exp(x/2).  It costs one multiplication and gives the bits that the cross-entropy has beside a
// distillation at the default temperature 2 (Second::square): an ASD term of weight 0 and none at all are the same.
template <class T>
inline Vec<T> half_exp(Vec<T> shifted) {
  return scaled_exp<T>(shifted, T(0.5));
}

template <class T, class L>
struct CrossEntropyPasses {
  using S = typename L::Scalar;
  Rows<T, L> rows;
  Reader<T, L> z;
  S shift{}, scale{};  // the gradient is scale exp(z') - [c == y] ce_weight
  typename L::Total sum{};
  const T* halves = nullptr;  // exp(z'/2) of the whole row, or null

  CrossEntropyPasses(const Client& c, int64_t begin, int64_t end, T* buffer)
      : rows(c, begin, end), z{c.student, rows.own(), c.classes, false, -std::numeric_limits<T>::infinity(), buffer} {}

  void maximum() { shift = z.max(); }

  void exponentials(T* buffer) {
    const S top = shift;
    z.each_tile([&](const typename L::In& x, int64_t, int64_t n) {
      typename L::Sum terms;
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> half = half_exp<T>(x[i] - top);
        store<T>(buffer + i * kLanes<T>, half);
        terms.add(i, half * half);
      }
      sum += L::total(terms);
    });
    if (z.classes <= L::classes) halves = buffer;
  }

  void coefficients(T ce_weight) {
    const RowNumbers& numbers = rows.c.rows;
    const S own_logit = rows.gather([&](int r) { return element<T>(rows.c.student, rows.row[r], rows.label[r]); });
    scale = L::narrow(1 / sum) * ce_weight;
    rows.put(numbers.ce_sum, sum);
    L::put_difference(numbers.ce_margin + rows.begin, rows.count, shift, own_logit);
  }

  void gradient(T ce_weight, T* buffer) {
    const Client& c = rows.c;
    const S top = shift, factor = scale;
    const T* const kept = halves;
    z.each_tile([&](const typename L::In& student, int64_t c0, int64_t n) {
      const typename L::Out out = L::out_tile(c.gradient, c.student.type, rows.begin * c.classes + c0, n, buffer);
      for (int64_t i = 0; i < L::vectors(n); ++i) {
        const Vec<T> half = kept ? load<T>(kept + i * kLanes<T>) : half_exp<T>(student[i] - top);
        out.put(i, half * half * factor);
      }
      at_true_class<L>(rows.own(), c0, n, out.data, [&](T& x, int) { x -= ce_weight; });
      if (out.data == buffer) store_tile<L>(c.gradient, c.student.type, rows.own(), c.classes, c0, n, buffer);
    });
  }
};

void cross_entropy_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  with_layout(c, [&](auto zero, auto layout) {
    using T = decltype(zero);
    using L = decltype(layout);
    Tiles<T> tiles;
    const T ce_weight = ce_weight_of_row<T>(c, o);
    each_block<T, L>(c, begin, end, c.gradient, c.student.type, [&](int64_t first, int64_t last, int64_t stride) {
      Block<CrossEntropyPasses<T, L>> block;
      for (int64_t i = first; i < last; i += L::rows) block.add(c, i, last, tiles.first + block.count * stride);
      T* exps = tiles.exps;
      block.each([](auto& passes) { passes.maximum(); });
      block.each([&](auto& passes) { passes.exponentials(std::exchange(exps, exps + stride)); });
      block.each([&](auto& passes) { passes.coefficients(ce_weight); });
      if (c.gradient) block.each([&](auto& passes) { passes.gradient(ce_weight, tiles.out); });
    });
  });
}
