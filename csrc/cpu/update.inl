// The client update over a range of one client's elements, with SIMD.  Included by isa.inl.
//
// Every array is read and written where it lies: no alignment is asked for, and nothing beyond the range is touched.

// As many elements as a vector has doubles, as doubles.
template <class T, class N>
inline Vec<double> read_wide(const T* p, N n) {
  if constexpr (is_partial<N>) {
    alignas(FEDASD_VECTOR_BYTES) T lane[kLanes<double>] = {};
    for (int64_t i = 0; i < n; ++i) lane[i] = p[i];
    return read_wide(lane, std::integral_constant<int64_t, kLanes<double>>{});
  } else {
    Half<T> v;
    std::memcpy(&v, p, sizeof v);
    return widen<T>(v);
  }
}

// f with a value of the client's element type.
template <class F>
inline auto with_element(DType type, F f) {
  return type == DType::f64 ? f(double{}) : f(float{});
}

// In double: a float sum loses digits over millions of parameters, and the square of a float may overflow.
inline double squares(const ClientUpdate& c, int64_t begin, int64_t end) {
  auto sum = [&](auto zero, auto has_quadratic, auto has_linear) {
    using T = decltype(zero);
    const T *w = static_cast<const T*>(c.w), *g = static_cast<const T*>(c.g), *v = static_cast<const T*>(c.linear);
    auto square = [&](int64_t i, auto n) {
      Vec<double> u = read_wide(g + i, n);
      if constexpr (has_quadratic.value) u = with_quadratic(u, read_wide(w + i, n), c.quadratic);
      if constexpr (has_linear.value) u = u + read_wide(v + i, n);
      return u * u;
    };
    // Four sums, so that an addition need not wait for the one before it.
    constexpr int64_t lanes = kLanes<double>;
    constexpr auto whole = std::integral_constant<int64_t, lanes>{};
    Vec<double> sums[4] = {};
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes)
      for (int s = 0; s < 4; ++s) sums[s] += square(i + s * lanes, whole);
    over_vectors<lanes>(i, end, [&](int64_t at, auto n) { sums[0] += square(at, n); });
    return reduce<double>((sums[0] + sums[1]) + (sums[2] + sums[3]), [](auto a, auto b) { return a + b; });
  };
  return with_element(c.type, [&](auto zero) {
    return with_flag(c.quadratic != 0, [&](auto quadratic) {
      return with_flag(c.linear, [&](auto linear) { return sum(zero, quadratic, linear); });
    });
  });
}

inline void step(const ClientUpdate& c, int64_t begin, int64_t end) {
  auto run = [&](auto zero, auto has_linear, auto has_velocity) {
    using T = decltype(zero);
    T *w = static_cast<T*>(c.w), *velocity = static_cast<T*>(c.velocity);
    const T *g = static_cast<const T*>(c.g), *v = static_cast<const T*>(c.linear);
    const T quadratic = T(c.quadratic), factor = T(c.factor), decay = T(c.decay), momentum = T(c.momentum),
            lr = T(c.lr);
    over_vectors<kLanes<T>>(begin, end, [&](int64_t i, auto n) {
      const Vec<T> at = read(w + i, n);
      Vec<T> u = with_quadratic(read(g + i, n), at, quadratic);
      if constexpr (has_linear.value) u = u + read(v + i, n);
      Vec<T> d = direction(u, at, factor, decay);
      if constexpr (has_velocity.value) {
        d = with_momentum(read(velocity + i, n), d, momentum);
        write<T>(velocity + i, n, d);
      }
      write<T>(w + i, n, moved(at, d, -lr));
    });
  };
  with_element(c.type, [&](auto zero) {
    with_flag(c.linear,
              [&](auto linear) { with_flag(c.velocity, [&](auto velocity) { run(zero, linear, velocity); }); });
  });
}

inline void ascend(const ClientUpdate& c, int64_t begin, int64_t end) {
  with_element(c.type, [&](auto zero) {
    using T = decltype(zero);
    T *w = static_cast<T*>(c.w), *saved = static_cast<T*>(c.saved);
    const T* g = static_cast<const T*>(c.g);
    const T factor = T(c.factor);
    over_vectors<kLanes<T>>(begin, end, [&](int64_t i, auto n) {
      const Vec<T> at = read(w + i, n);
      write<T>(saved + i, n, at);
      write<T>(w + i, n, moved(at, read(g + i, n), factor));
    });
  });
}

inline bool all_true(Bits<double> mask) {
#if FEDASD_VECTOR_BYTES == 32
  return _mm256_movemask_pd((__m256d)mask) == 15;
#elif FEDASD_VECTOR_BYTES == 16 && defined(__x86_64__)
  return _mm_movemask_pd((__m128d)mask) == 3;
#else
  bool all = true;
  for (int i = 0; i < kLanes<double>; ++i) all &= mask[i] != 0;
  return all;
#endif
}

// The nearest integer, the even one of two; what int64 cannot hold becomes what the CPU makes of it.
inline UnsignedBits<double> nearest_integer(Vec<double> x) {
#if FEDASD_VECTOR_BYTES == 64
  return (UnsignedBits<double>)_mm512_maskz_cvtpd_epi64(__mmask8(-1), (__m512d)x);
#else
  // Adding 1.5 * 2^52 leaves the integer in the low bits of the sum, up to 2^51.
  const Vec<double> magic = splat<double>(Constants<double>::round_magic);
  UnsignedBits<double> integers = UnsignedBits<double>(x + magic) - UnsignedBits<double>(magic);
  const double limit = 2251799813685248.0;
  const Bits<double> small = (x > -limit) & (x < limit);
  if (!all_true(small))
    for (int i = 0; i < kLanes<double>; ++i)
      if (!small[i]) integers[i] = uint64_t(int64_t(__builtin_nearbyint(x[i])));
  return integers;
#endif
}

// In pieces whose totals stay in the L1 cache, whatever the number of clients.
inline void accumulate(const Accumulation& a, int64_t begin, int64_t end) {
  constexpr int64_t lanes = kLanes<double>, piece = 1024;
  uint64_t* total = reinterpret_cast<uint64_t*>(a.total);  // wraps around like torch's
  with_element(a.type, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t from = begin; from < end; from += piece) {
      const int64_t to = from + piece < end ? from + piece : end;
      for (int64_t k = 0; k < a.clients; ++k) {
        const T* w = static_cast<const T*>(a.w.client(k, a.type));
        const double scale = a.scales[k];
        over_vectors<lanes>(from, to, [&](int64_t i, auto n) {
          Vec<double> product = read_wide(w + i, n) * scale;
          FEDASD_ROUNDED(product);  // before it is rounded to an integer, as the reference does
          const UnsignedBits<double> term = nearest_integer(product);
          if constexpr (is_partial<decltype(n)>) {
            for (int64_t j = 0; j < n; ++j) total[i + j] += term[j];
          } else {
            UnsignedBits<double> sum;
            std::memcpy(&sum, total + i, sizeof sum);
            sum += term;
            std::memcpy(total + i, &sum, sizeof sum);
          }
        });
      }
    }
  });
}
