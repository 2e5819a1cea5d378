// The client update against plain loops in double, for every backend: values, layouts, and what must not be touched.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include "arrays.h"
#include "check.h"
#include "update/problem.h"

namespace update_cases {

using namespace fedasd;
using arrays::Memory;

struct Backend {
  virtual ~Backend() = default;
  virtual void local_step(const LocalStep&, const std::vector<Memory>&) = 0;
  virtual void ascend(const Ascent&, const std::vector<Memory>&) = 0;
  virtual void accumulate(const Accumulation&, const std::vector<Memory>&) = 0;
};

// [clients, size], `shift` elements behind an aligned address, `gap` between rows.  What is not a row holds a NaN of
// its own, which spoils any sum that it gets into and shows any write.
template <class T>
class Array {
 public:
  Array(int64_t clients, int64_t size, int shift, int gap) : clients_(clients), size_(size), stride_(size + gap) {
    memory_.assign(size_t(shift + clients * stride_ + kGuard), filler());
    first_ = kAlign + shift;
    memory_.insert(memory_.begin(), kAlign, filler());
    // std::vector aligns to 16 bytes, which is what the kernels ask for.
  }
  T& at(int64_t k, int64_t i) { return memory_[size_t(first_ + k * stride_ + i)]; }
  T at(int64_t k, int64_t i) const { return memory_[size_t(first_ + k * stride_ + i)]; }
  Rows rows() { return {memory_.data() + first_, stride_}; }
  ConstRows rows() const { return {memory_.data() + first_, stride_}; }
  Memory memory(const char* name, bool read_only) const {
    return {memory_.data(), memory_.size() * sizeof(T), name, read_only};
  }
  bool intact() const {
    const T fill = filler();
    std::vector<char> is_row(memory_.size(), 0);
    for (int64_t k = 0; k < clients_; ++k) std::fill_n(is_row.begin() + first_ + k * stride_, size_, 1);
    for (size_t i = 0; i < memory_.size(); ++i)
      if (!is_row[i] && std::memcmp(&memory_[i], &fill, sizeof(T)) != 0) return false;
    return true;
  }
  bool operator==(const Array& other) const { return same_rows(other, 0, clients_, 0); }
  // Rows [first, first + count) of this one are, bit by bit, those of the other from `from` on.
  bool same_rows(const Array& other, int64_t first, int64_t count, int64_t from) const {
    for (int64_t k = 0; k < count; ++k)
      if (size_ && std::memcmp(&memory_[size_t(first_ + (first + k) * stride_)],
                               &other.memory_[size_t(other.first_ + (from + k) * other.stride_)],
                               size_t(size_) * sizeof(T)) != 0)
        return false;
    return true;
  }

 private:
  static constexpr int kAlign = 8, kGuard = 8;
  static T filler() { return std::numeric_limits<T>::quiet_NaN(); }
  int64_t clients_, size_, stride_, first_;
  std::vector<T> memory_;
};

enum class Linear { none, each, shared };
enum class Clip { none, active, inactive };

struct Case {
  unsigned seed = 0;
  int64_t clients = 1, size = 100;
  int shift = 0, gap = 0;
  Linear linear = Linear::none;
  Clip clip = Clip::none;
  double quadratic = 0, decay = 0, momentum = 0;
  bool velocity = false, per_client = false, norms = false;
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "seed " << c.seed << ", " << c.clients << " x " << c.size << ", shift " << c.shift << ", gap " << c.gap
             << ", linear " << int(c.linear) << ", clip " << int(c.clip) << ", a " << c.quadratic << ", decay "
             << c.decay << ", velocity " << c.velocity << ", per client " << c.per_client << ", norms " << c.norms;
}

// Sizes on both sides of a vector, a block and a chunk of the kernels.
inline Case draw(unsigned seed, int64_t largest = 20000) {
  std::mt19937 random(seed);
  auto pick = [&](auto... options) {
    const std::common_type_t<decltype(options)...> all[] = {options...};
    return all[random() % sizeof...(options)];
  };
  Case c;
  c.seed = seed;
  c.clients = pick(1, 1, 2, 3, 5);
  c.size = std::min<int64_t>(largest, pick(0, 1, 2, 3, 5, 15, 16, 17, 63, 64, 65, 255, 1024, 1027, 4095, 4096, 4097,
                                           8192, 9001, 16385, 20000));
  c.shift = pick(0, 0, 1, 2, 3);
  c.gap = pick(0, 0, 1, 3, 4);
  c.linear = pick(Linear::none, Linear::each, Linear::shared);
  c.clip = pick(Clip::none, Clip::active, Clip::inactive);
  c.quadratic = pick(0.0, 0.0, 0.25);
  c.decay = pick(0.0, 0.125);
  c.velocity = pick(0, 1);
  c.momentum = c.velocity ? pick(0.0, 0.9) : 0.0;
  c.per_client = pick(0, 1);
  c.norms = pick(0, 1);
  return c;
}

// Uniform numbers of variance 1, from a generator that costs less than the kernels it feeds.
struct Noise {
  uint64_t state;
  explicit Noise(unsigned seed) : state(seed * 2 + 1) {}
  double operator()() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double(state >> 11) * 0x1p-53 - 0.5) * 3.4641016151377544;
  }
};

// All arrays of a step.
template <class T>
struct Step {
  Case c;
  Array<T> w, velocity, g, linear;
  std::vector<double> lr, decay, norms;
  LocalStep problem;

  explicit Step(const Case& c_)
      : c(c_), w(c.clients, c.size, c.shift, c.gap), velocity(w), g(c.clients, c.size, c.shift, c.gap),
        linear(c.linear == Linear::shared ? 1 : c.clients, c.size, c.shift, c.gap), lr(size_t(c.clients)), decay(lr),
        norms(lr) {
    Noise normal(c.seed);
    for (int64_t k = 0; k < c.clients; ++k) {
      // Every third client has finished, and whatever its gradient is must not matter.
      lr[size_t(k)] = k % 3 == 1 ? 0 : 0.1 + 0.05 * double(k);
      decay[size_t(k)] = 0.01 * double(k);
      norms[size_t(k)] = -1;
      for (int64_t i = 0; i < c.size; ++i) {
        w.at(k, i) = T(normal());
        velocity.at(k, i) = T(normal());
        g.at(k, i) = T(normal());
        if (c.per_client && lr[size_t(k)] == 0 && i % 2) g.at(k, i) = std::numeric_limits<T>::quiet_NaN();
        if (k == 0 || c.linear != Linear::shared) linear.at(k, i) = T(normal());
      }
    }
    problem.type = sizeof(T) == 8 ? DType::f64 : DType::f32;
    problem.clients = c.clients;
    problem.size = c.size;
    problem.quadratic = c.quadratic;
    problem.momentum = c.momentum;
    // The norms are about sqrt(2 size).
    if (c.clip != Clip::none)
      problem.clip = c.clip == Clip::active ? 0.3 * std::sqrt(double(c.size) + 1) : 1000.0 + double(c.size);
    problem.decay.all = c.decay;
    problem.lr.all = 0.25;
  }

  // Pointers into this object, which must stay where it is.
  void run(Backend& backend) {
    problem.w = w.rows();
    problem.g = std::as_const(g).rows();
    if (c.velocity) problem.velocity = velocity.rows();
    if (c.linear != Linear::none) problem.linear = std::as_const(linear).rows();
    if (c.linear == Linear::shared) problem.linear.client_stride = 0;
    if (c.per_client) problem.lr.each = lr.data(), problem.decay.each = decay.data();
    if (c.norms) problem.norms = norms.data();
    backend.local_step(problem, {w.memory("w", false), velocity.memory("velocity", !c.velocity), g.memory("g", true),
                                 linear.memory("linear", true), arrays::memory_of(lr, "lr", true),
                                 arrays::memory_of(decay, "decay", true), arrays::memory_of(norms, "norms", !c.norms)});
  }
  bool operator==(const Step& other) const {
    return w == other.w && velocity == other.velocity && norms == other.norms;
  }
};

inline bool close(double x, double expected, double scale, double unit) {
  return std::fabs(x - expected) <= 8 * unit * scale || (std::isnan(x) && std::isnan(expected));
}

template <class T>
void check_step(Backend& backend, const Case& c) {
  const double unit = numbers::unit_roundoff(sizeof(T) == 8 ? DType::f64 : DType::f32);
  const Step<T> before(c);
  Step<T> after(c);
  after.run(backend);
  CHECK(after.w.intact() && after.velocity.intact(), "wrote between the rows", c);
  CHECK(after.g.same_rows(before.g, 0, c.clients, 0), "wrote to g", c);
  for (int64_t k = 0; k < c.clients; ++k) {
    const double lr = c.per_client ? before.lr[size_t(k)] : 0.25,
                 decay = c.per_client ? before.decay[size_t(k)] : c.decay;
    std::vector<double> u(size_t(c.size));
    long double squares = 0;
    for (int64_t i = 0; i < c.size; ++i) {
      u[size_t(i)] = double(before.g.at(k, i)) + c.quadratic * double(before.w.at(k, i));
      if (c.linear != Linear::none) u[size_t(i)] += double(before.linear.at(c.linear == Linear::shared ? 0 : k, i));
      squares += static_cast<long double>(u[size_t(i)]) * u[size_t(i)];
    }
    const double norm = double(std::sqrt(squares));
    const bool finished = lr == 0;
    if (finished) {
      CHECK(after.w.same_rows(before.w, k, 1, k) && after.velocity.same_rows(before.velocity, k, 1, k),
            "a finished client changed", k, c);
      if (c.norms) CHECK(after.norms[size_t(k)] == 0, "norm of a finished client", k, c);
      continue;
    }
    if (c.norms) CHECK(close(after.norms[size_t(k)], norm, norm, unit), "norm", k, after.norms[size_t(k)], norm, c);
    else CHECK(after.norms[size_t(k)] == -1, "a norm that nobody wanted", k, c);
    const double factor = c.clip == Clip::none ? 1 : std::min(1.0, before.problem.clip / (norm + 1e-6));
    CHECK((factor < 1) == (c.clip == Clip::active && norm > before.problem.clip), "the case is what it says", c);
    for (int64_t i = 0; i < c.size; ++i) {
      const double w = double(before.w.at(k, i)), v = double(before.velocity.at(k, i));
      double d = factor * u[size_t(i)] + decay * w;
      const double scale = std::fabs(w) + std::fabs(v) + std::fabs(u[size_t(i)]) + 3;
      if (c.velocity) {
        d += c.momentum * v;
        CHECK(close(double(after.velocity.at(k, i)), d, scale, unit), "velocity", k, i, double(after.velocity.at(k, i)),
              d, c);
      }
      CHECK(close(double(after.w.at(k, i)), w - lr * d, scale, unit), "w", k, i, double(after.w.at(k, i)), w - lr * d,
            c);
    }
  }
}

// A client in a stack has the bits that it has alone, however it is aligned.
template <class T>
void check_alone(Backend& backend, Case c) {
  c.linear = c.linear == Linear::shared ? Linear::each : c.linear;
  Step<T> all(c);
  const Step<T> before(c);
  all.run(backend);
  for (int64_t k = 0; k < c.clients; ++k) {
    Case one = c;
    one.clients = 1;
    one.shift = int(k % 4);
    Step<T> alone(one);
    for (int64_t i = 0; i < c.size; ++i) {
      alone.w.at(0, i) = before.w.at(k, i), alone.g.at(0, i) = before.g.at(k, i);
      alone.velocity.at(0, i) = before.velocity.at(k, i), alone.linear.at(0, i) = before.linear.at(k, i);
    }
    alone.lr[0] = before.lr[size_t(k)];
    alone.decay[0] = before.decay[size_t(k)];
    alone.run(backend);
    CHECK(alone.w.same_rows(all.w, 0, 1, k) && alone.velocity.same_rows(all.velocity, 0, 1, k),
          "bits depend on the stack", k, c);
    if (c.norms) CHECK(alone.norms[0] == all.norms[size_t(k)], "norm depends on the stack", k, c);
  }
}

template <class T>
void check_ascent(Backend& backend, const Case& c) {
  const double unit = numbers::unit_roundoff(sizeof(T) == 8 ? DType::f64 : DType::f32);
  Step<T> s(c);
  Case plain = c;
  plain.per_client = false;  // no NaN
  s = Step<T>(plain);
  const Array<T> w = s.w, g = s.g;
  Ascent p;
  p.type = s.problem.type;
  p.clients = c.clients;
  p.size = c.size;
  p.w = s.w.rows();
  p.saved = s.velocity.rows();
  p.g = std::as_const(s.g).rows();
  p.rho = 0.75;
  p.epsilon = c.seed % 2 ? 1e-16 : 0.5;
  backend.ascend(p, {s.w.memory("w", false), s.velocity.memory("saved", false), s.g.memory("g", true)});
  CHECK(s.w.intact() && s.velocity.intact(), "wrote between the rows", c);
  CHECK(s.velocity == w, "saved is not w", c);
  CHECK(s.g == g, "wrote to g", c);
  for (int64_t k = 0; k < c.clients; ++k) {
    double norm = 0;
    for (int64_t i = 0; i < c.size; ++i) norm += double(g.at(k, i)) * double(g.at(k, i));
    for (int64_t i = 0; i < c.size; ++i) {
      const double expected = double(w.at(k, i)) + p.rho * double(g.at(k, i)) / (std::sqrt(norm) + p.epsilon);
      CHECK(close(double(s.w.at(k, i)), expected, std::fabs(expected) + 1, unit), "ascent", k, i, double(s.w.at(k, i)),
            expected, c);
    }
  }
}

// Halves, ties, large and tiny numbers: everything up to 2^62 after scaling.
template <class T>
void check_accumulation(Backend& backend, const Case& c) {
  std::mt19937_64 random(c.seed + 2);
  auto uniform = [&] { return std::uniform_real_distribution<double>(-1, 1)(random); };
  Array<T> w(c.clients, c.size, c.shift, c.gap);
  std::vector<double> scales;
  for (int64_t k = 0; k < c.clients; ++k) {
    scales.push_back(k % 2 ? -0.5 : uniform() * kFixedPoint / double(c.clients));
    for (int64_t i = 0; i < c.size; ++i)
      w.at(k, i) =
          i % 4 == 0 ? T(std::round(uniform() * 100)) : T(std::ldexp(uniform(), int(random() % (k % 2 ? 62 : 17))));
  }
  std::vector<int64_t> total(size_t(c.size + 2));
  for (int64_t& x : total) x = int64_t(random());
  std::vector<int64_t> expected = total;
  for (int64_t k = 0; k < c.clients; ++k)
    for (int64_t i = 0; i < c.size; ++i) {
      const double product = double(w.at(k, i)) * scales[size_t(k)];
      expected[size_t(i + 1)] = int64_t(uint64_t(expected[size_t(i + 1)]) + uint64_t(int64_t(std::nearbyint(product))));
    }
  Accumulation p;
  p.type = sizeof(T) == 8 ? DType::f64 : DType::f32;
  p.clients = c.clients;
  p.size = c.size;
  p.w = std::as_const(w).rows();
  p.scales = scales.data();
  p.total = total.data() + 1;
  backend.accumulate(p, {w.memory("w", true), {total.data(), total.size() * sizeof(int64_t), "total", false}});
  CHECK(total == expected, "total", c);
}

template <class T>
void check_case(Backend& backend, const Case& c) {
  check_step<T>(backend, c);
  check_ascent<T>(backend, c);
  check_accumulation<T>(backend, c);
}

}  // namespace update_cases
