// Cohorts for the whole-client op, drawn from a seed, and their training by its definition: plain loops in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "arrays.h"
#include "chain/problem.h"
#include "check.h"
#include "reference.h"

namespace chain_cases {

using namespace fedasd;

// A cohort with everything that the op takes, drawn from a seed.
template <class T>
struct Cohort {
  explicit Cohort(unsigned seed) : random(seed) {
    const int64_t depth = between(1, 3);
    int64_t width = between(1, 40);
    for (int64_t l = 0; l < depth; ++l) {
      ChainLayer layer;
      layer.in = width;
      layer.out = width = l + 1 < depth ? between(1, 40) : between(2, 20);
      layer.weight = p.size;
      p.size += layer.in * layer.out;
      if (between(0, 3)) {
        layer.bias = p.size;
        p.size += layer.out;
      }
      if (l + 1 < depth) layer.activation = Activation(between(0, kActivations - 1));
      p.layers.push_back(layer);
    }
    p.type = sizeof(T) == 8 ? DType::f64 : DType::f32;
    p.clients = between(1, 5);
    p.batch_size = between(1, 30);
    for (int64_t k = 0; k < p.clients; ++k) {
      sizes.push_back(between(1, 25));
      epochs.push_back(between(1, 3));
      for (int64_t e = 0; e < epochs.back(); ++e) {
        std::vector<int64_t> order(static_cast<size_t>(sizes.back()));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        orders.insert(orders.end(), order.begin(), order.end());
      }
      for (int64_t i = 0; i < sizes.back(); ++i) targets.push_back(between(0, width - 1));
      decays.push_back(0.01 * double(k));
    }
    start = normal(p.size, 0.4);
    inputs = normal(int64_t(targets.size()) * p.layers[0].in, 1);
    linear = normal(p.clients * p.size, 0.1);
    p.lr = 0.1;
    p.clip = between(0, 1) ? 0.5 : 0;
    p.momentum = between(0, 1) ? 0.7 : 0;
    p.quadratic = between(0, 1) ? 0.2 : 0;
    p.rho = between(0, 1) ? 0.1 : 0;
    p.rho_epsilon = 1e-12;
    has_linear = between(0, 1);
    p.options.asd_weight = between(0, 1) ? 2 : 0;
    p.options.temperature = 1.5;
    p.options.divergence = Divergence(between(0, 2));
    p.options.adaptive = between(0, 2);
    p.options.not_true = between(0, 1);
    if (between(0, 3) == 0)
      for (size_t i = 0; i < targets.size(); i += 3) targets[i] = p.options.ignore_index;
  }

  struct Result {
    std::vector<T> ends, losses;
    std::vector<double> norms, distances;
    bool operator==(const Result& other) const {
      return ends == other.ends && losses == other.losses && norms == other.norms && distances == other.distances;
    }
  };

  // What a backend does, given the arrays that it may touch.
  using Train = std::function<void(const ChainTraining&, const std::vector<arrays::Memory>&)>;

  void point() {
    p.start = start.data();
    p.inputs = inputs.data();
    p.targets = targets.data();
    p.sizes = sizes.data();
    p.epochs = epochs.data();
    p.orders = orders.data();
    p.samples = int64_t(targets.size());
    p.ordered = int64_t(orders.size());
    p.decay.each = decays.data();
    p.linear = has_linear ? ConstRows{linear.data(), p.size} : ConstRows{};
    p.steps = 0;
    for (int64_t k = 0; k < p.clients; ++k) p.steps = std::max(p.steps, steps_of(p, k));
  }

  Result run(const Train& train) {
    point();
    Result result;
    // One more, which stays as it is.
    result.ends.assign(size_t(p.clients * p.size + 1), T(7));
    result.losses.assign(size_t(p.clients * p.steps + 1), T(7));
    result.norms.assign(result.losses.size(), 7);
    result.distances.assign(size_t(p.clients + 1), 7);
    p.ends = {result.ends.data(), p.size};
    p.losses = {result.losses.data(), sizeof(T) == 8};
    p.norms = result.norms.data();
    p.distances = result.distances.data();
    using arrays::memory_of;
    train(p, {memory_of(start, "start", true), memory_of(inputs, "inputs", true), memory_of(targets, "targets", true),
              memory_of(sizes, "sizes", true), memory_of(epochs, "epochs", true), memory_of(orders, "orders", true),
              memory_of(decays, "decays", true), memory_of(linear, "linear", true),
              memory_of(result.ends, "ends", false), memory_of(result.losses, "losses", false),
              memory_of(result.norms, "norms", false), memory_of(result.distances, "distances", false)});
    CHECK(result.ends.back() == T(7) && result.losses.back() == T(7) && result.norms.back() == 7 &&
              result.distances.back() == 7,
          "written behind an array", p.clients);
    return result;
  }

  int64_t between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); }
  std::vector<T> normal(int64_t n, double deviation) {
    std::normal_distribution<double> draw(0, deviation);
    std::vector<T> values(static_cast<size_t>(n));
    for (T& x : values) x = T(draw(random));
    return values;
  }

  std::mt19937 random;
  ChainTraining p;
  std::vector<int64_t> sizes, epochs, orders, targets;
  std::vector<double> decays;
  std::vector<T> start, inputs, linear;
  bool has_linear = false;
};

inline double apply(Activation f, double x) {
  switch (f) {
    case Activation::none: return x;
    case Activation::relu: return std::max(x, 0.0);
    case Activation::tanh: return std::tanh(x);
    case Activation::gelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu: return x / (1 + std::exp(-x));
  }
  return 0;
}
inline double slope(Activation f, double x) {  // by differences, exact for the others
  if (f == Activation::none) return 1;
  if (f == Activation::relu) return x > 0;
  const double h = 1e-5;
  auto difference = [&](double d) { return (apply(f, x + d) - apply(f, x - d)) / (2 * d); };
  return (4 * difference(h) - difference(2 * h)) / 3;
}

// The training of one client by its definition, in double.
template <class T>
class Definition {
 public:
  Definition(const Cohort<T>& cohort, int64_t k) : p_(cohort.p), w(cohort.start.begin(), cohort.start.end()) {
    const std::vector<double> start = w;
    std::vector<double> velocity(w.size());
    int64_t sample = 0, place = 0;
    for (int64_t j = 0; j < k; ++j)
      sample += cohort.sizes[size_t(j)], place += cohort.sizes[size_t(j)] * cohort.epochs[size_t(j)];
    const int64_t n = cohort.sizes[size_t(k)], in = p_.layers[0].in;
    const int64_t* const labels = cohort.targets.data() + sample;
    std::vector<reference::Teacher> teachers;  // the start's outputs
    for (int64_t i = 0; i < n; ++i) {
      const double share = double(std::count(labels, labels + n, labels[i])) / double(n);
      const auto logits = layers(cohort.inputs.data() + (sample + i) * in).back().after;
      teachers.push_back(labels[i] < 0 ? reference::Teacher{}
                                       : reference::teacher(p_.options, logits, labels[i], share));
    }
    for (int64_t e = 0; e < cohort.epochs[size_t(k)]; ++e)
      for (int64_t i = 0; i < n; i += p_.batch_size) {
        std::vector<const T*> x;
        std::vector<int64_t> y;
        std::vector<reference::Teacher> t;
        for (int64_t b = i; b < std::min(n, i + p_.batch_size); ++b) {
          const int64_t row = sample + cohort.orders[size_t(place + e * n + b)];
          x.push_back(cohort.inputs.data() + row * in);
          y.push_back(std::max<int64_t>(cohort.targets[size_t(row)], -1));
          t.push_back(teachers[size_t(row - sample)]);
        }
        losses.push_back(differentiate(x, y, t));
        if (p_.rho != 0) {
          const std::vector<double> kept = w;
          const double factor = p_.rho / (length(g) + p_.rho_epsilon);
          for (size_t j = 0; j < w.size(); ++j) w[j] += factor * g[j];
          differentiate(x, y, t);
          w = kept;
        }
        for (size_t j = 0; j < w.size(); ++j) {
          g[j] += p_.quadratic * w[j];
          if (cohort.has_linear) g[j] += double(cohort.linear[size_t(k) * w.size() + j]);
        }
        norms.push_back(length(g));
        const double factor = p_.clip != 0 ? std::min(1.0, p_.clip / (norms.back() + 1e-6)) : 1;
        for (size_t j = 0; j < w.size(); ++j) {
          velocity[j] = p_.momentum * velocity[j] + factor * g[j] + cohort.decays[size_t(k)] * w[j];
          w[j] -= p_.lr * velocity[j];
        }
      }
    std::vector<double> change(w.size());
    for (size_t j = 0; j < w.size(); ++j) change[j] = w[j] - start[j];
    distance = length(change);
  }

  static double length(const std::vector<double>& v) {
    return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
  }

 private:
  const ChainTraining& p_;

 public:
  std::vector<double> w, g, losses, norms;
  double distance = 0;

 private:
  struct Outputs {
    std::vector<double> before, after;  // the activation
  };
  // Of the input (as what comes after nothing), and of each layer.
  std::vector<Outputs> layers(const T* input) const {
    std::vector<Outputs> all{{{}, {input, input + p_.layers[0].in}}};
    for (const ChainLayer& layer : p_.layers) {
      Outputs y;
      for (int64_t o = 0; o < layer.out; ++o) {
        double sum = layer.bias >= 0 ? w[size_t(layer.bias + o)] : 0;
        for (int64_t i = 0; i < layer.in; ++i)
          sum += w[size_t(layer.weight + o * layer.in + i)] * all.back().after[size_t(i)];
        y.before.push_back(sum);
        y.after.push_back(apply(layer.activation, sum));
      }
      all.push_back(y);
    }
    return all;
  }

  double differentiate(const std::vector<const T*>& inputs, const std::vector<int64_t>& labels,
                       const std::vector<reference::Teacher>& teachers) {
    g.assign(w.size(), 0);
    std::vector<std::vector<Outputs>> rows;
    std::vector<reference::Row> logits;
    for (const T* input : inputs) {
      rows.push_back(layers(input));
      logits.push_back(rows.back().back().after);
    }
    const reference::Result loss = reference::objective(p_.options, logits, teachers, labels);
    for (size_t b = 0; b < inputs.size(); ++b) {
      std::vector<double> d = loss.gradient[b];
      for (size_t l = p_.layers.size(); l-- > 0;) {
        const ChainLayer& layer = p_.layers[l];
        const std::vector<double>& x = rows[b][l].after;
        std::vector<double> below(size_t(layer.in));
        for (int64_t o = 0; o < layer.out; ++o) {
          const double at = d[size_t(o)] * slope(layer.activation, rows[b][l + 1].before[size_t(o)]);
          if (layer.bias >= 0) g[size_t(layer.bias + o)] += at;
          for (int64_t i = 0; i < layer.in; ++i) {
            g[size_t(layer.weight + o * layer.in + i)] += at * x[size_t(i)];
            below[size_t(i)] += at * w[size_t(layer.weight + o * layer.in + i)];
          }
        }
        d = below;
      }
    }
    return loss.loss;
  }
};

// The largest difference between what a backend found for the cohort and the definition.
template <class T>
double worst_difference(const Cohort<T>& cohort, const typename Cohort<T>::Result& found) {
  double worst = 0;
  auto compare = [&](double a, double b) {
    const double difference = std::fabs(a - b);
    worst = difference <= worst ? worst : difference;  // NaN too
  };
  for (int64_t k = 0; k < cohort.p.clients; ++k) {
    const Definition<T> expected(cohort, k);
    compare(found.distances[size_t(k)], expected.distance);
    for (int64_t j = 0; j < cohort.p.size; ++j)
      compare(double(found.ends[size_t(k * cohort.p.size + j)]), expected.w[size_t(j)]);
    for (int64_t s = 0; s < cohort.p.steps; ++s) {
      const bool done = s >= int64_t(expected.losses.size());
      const size_t at = size_t(k * cohort.p.steps + s);
      compare(double(found.losses[at]), done ? 0 : expected.losses[size_t(s)]);
      compare(found.norms[at], done ? 0 : expected.norms[size_t(s)]);
    }
  }
  return worst;
}

// Differences give derivatives to 1e-10 or so; a float's rounding grows over the steps.
template <class T>
constexpr double kTolerance = sizeof(T) == 8 ? 1e-8 : 3e-4;

}  // namespace chain_cases
