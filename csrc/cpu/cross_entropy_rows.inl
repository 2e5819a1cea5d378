// Row passes of the cross-entropy alone, for clients without a teacher.  Included by isa.inl.

// exp(x) as the square of exp(x/2).  It costs one multiplication and gives the bits that the cross-entropy has beside a
// distillation at the default temperature 2 (Second::square): an ASD term of weight 0 and none at all are the same.
template <class T>
inline Vec<T> half_exp(Vec<T> shifted) {
  return scaled_exp<T>(shifted, T(0.5));
}

template <class T, class L>
struct CrossEntropyPasses {
  Rows<T, L> rows;
  Reader<T, L> z;
  T* halves;                  // exp(z'/2) of the group's rows
  Lanes<T> shift{}, scale{};  // the gradient is scale exp(z') - [c == y] ce_weight

  CrossEntropyPasses(const Rows<T, L>& rows_, Tiles<T>& tiles)
      : rows(rows_),
        z{rows.c.student, rows.own(), rows.c.classes, false, -std::numeric_limits<T>::infinity(), tiles.first},
        halves(tiles.exps) {}

  void maximum() { shift = z.max(); }

  void exponentials(T ce_weight) {
    const int64_t stride = L::stride(z.classes);
    Totals<T> sum{};
    z.each_tile([&](const typename L::In& student, int64_t, int64_t n) {
      typename L::Sums sums(rows.count);
      L::each_row(z.group, [&](int r) {
        const typename L::Each top = L::pick(shift, r);
        const T* const x = student.row[r];
        T* const to = halves + r * stride;
        const T pad = z.pad;
        typename L::Sum terms;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> half = half_exp<T>(read<T>(x + i, width, pad) - top);
          write<T>(to + i, width, half);
          terms.add(half * half);
        }, [&] { terms.end_run(); });
        sums.put(r, terms);
      });
      sum += sums.total();
    });
    const RowNumbers& numbers = rows.c.rows;
    const Vec<T> own_logit = rows.own_logits(rows.c.student, rows.own());
    scale = (1 / sum).narrow() * ce_weight;
    rows.put(numbers.ce_sum, sum);
    rows.put(numbers.ce_margin, Totals<T>::of(shift.all()) - Totals<T>::of(own_logit));
  }

  void gradient(T ce_weight, T* buffer) {
    const Client& c = rows.c;
    const bool kept = z.classes <= L::classes;
    const int64_t stride = L::stride(z.classes);
    z.each_tile([&](const typename L::In& student, int64_t c0, int64_t n) {
      L::each_row(z.group, [&](int r) {
        const typename L::Each top = L::pick(shift, r), factor = L::pick(scale, r);
        const T *const x = student.row[r], *const from = halves + r * stride;
        T* const out = L::out_tile(c.gradient, c.student.type, (rows.begin + r) * c.classes + c0, buffer);
        const T pad = z.pad;
        L::each_vector(n, [&](int64_t i, auto width) {
          const Vec<T> half = kept ? read<T>(from + i, width) : half_exp<T>(read<T>(x + i, width, pad) - top);
          write<T>(out + i, width, half * half * factor);
        });
        const Group part = L::part(z.group, r);
        at_true_class(part, c0, n, [&](int64_t label, int at) { L::at(out, label, at) -= ce_weight; });
        if (out == buffer) store_tile<L>(c.gradient, c.student.type, part, c.classes, c0, n, buffer);
      });
    });
  }
};

void cross_entropy_rows(const Client& c, const Options& o, int64_t begin, int64_t end) {
  with_layout(c, [&](auto zero, auto layout) {
    using T = decltype(zero);
    using L = decltype(layout);
    Tiles<T> tiles;
    const T ce_weight = ce_weight_of_row<T>(c, o);
    each_group<T, L>(c, begin, end, c.gradient, c.student.type, [&](const Rows<T, L>& rows) {
      CrossEntropyPasses<T, L> passes(rows, tiles);
      passes.maximum();
      passes.exponentials(ce_weight);
      if (c.gradient) passes.gradient(ce_weight, tiles.out);
    });
  });
}
