// The whole-client op of the CPU against plain loops in double, and the same bits for any number of threads.
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "arrays.h"
#include "check.h"
#include "cpu/chain.h"

namespace {

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
    p.options.asd_weight = 0;
  }

  struct Result {
    std::vector<T> ends, losses;
    std::vector<double> norms, distances;
    bool operator==(const Result& other) const {
      return ends == other.ends && losses == other.losses && norms == other.norms && distances == other.distances;
    }
  };

  Result run(const cpu::Parallel& parallel) {
    p.start = start.data();
    p.inputs = inputs.data();
    p.targets = targets.data();
    p.sizes = sizes.data();
    p.epochs = epochs.data();
    p.orders = orders.data();
    p.decay.each = decays.data();
    p.linear = has_linear ? ConstRows{linear.data(), p.size} : ConstRows{};
    p.steps = 0;
    for (int64_t k = 0; k < p.clients; ++k) p.steps = std::max(p.steps, steps_of(p, k));
    Result result;
    result.ends.resize(size_t(p.clients * p.size));
    result.losses.resize(size_t(p.clients * p.steps));
    result.norms.resize(result.losses.size());
    result.distances.resize(size_t(p.clients));
    p.ends = {result.ends.data(), p.size};
    p.losses = {result.losses.data(), sizeof(T) == 8};
    p.norms = result.norms.data();
    p.distances = result.distances.data();
    CHECK(cpu::train_clients(p, parallel), "not stopped", p.clients);
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

double apply(Activation f, double x) {
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
double slope(Activation f, double x) {  // by differences, exact for the others
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
    for (int64_t e = 0; e < cohort.epochs[size_t(k)]; ++e)
      for (int64_t i = 0; i < n; i += p_.batch_size) {
        std::vector<const T*> x;
        std::vector<int64_t> y;
        for (int64_t b = i; b < std::min(n, i + p_.batch_size); ++b) {
          const int64_t row = sample + cohort.orders[size_t(place + e * n + b)];
          x.push_back(cohort.inputs.data() + row * in);
          y.push_back(cohort.targets[size_t(row)]);
        }
        losses.push_back(differentiate(x, y));
        if (p_.rho != 0) {
          const std::vector<double> kept = w;
          const double factor = p_.rho / (length(g) + p_.rho_epsilon);
          for (size_t j = 0; j < w.size(); ++j) w[j] += factor * g[j];
          differentiate(x, y);
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
  double differentiate(const std::vector<const T*>& inputs, const std::vector<int64_t>& labels) {
    g.assign(w.size(), 0);
    double loss = 0;
    for (size_t b = 0; b < inputs.size(); ++b) {
      std::vector<std::vector<double>> x{{inputs[b], inputs[b] + p_.layers[0].in}}, z;
      for (const ChainLayer& layer : p_.layers) {
        std::vector<double> before(size_t(layer.out)), after;
        for (int64_t o = 0; o < layer.out; ++o) {
          before[size_t(o)] = layer.bias >= 0 ? w[size_t(layer.bias + o)] : 0;
          for (int64_t i = 0; i < layer.in; ++i)
            before[size_t(o)] += w[size_t(layer.weight + o * layer.in + i)] * x.back()[size_t(i)];
        }
        for (double value : before) after.push_back(apply(layer.activation, value));
        z.push_back(before);
        x.push_back(after);
      }
      double sum = 0;
      for (double logit : x.back()) sum += std::exp(logit);
      loss += (std::log(sum) - x.back()[size_t(labels[b])]) / double(inputs.size());
      std::vector<double> d;
      for (double logit : x.back()) d.push_back(std::exp(logit) / sum / double(inputs.size()));
      d[size_t(labels[b])] -= 1 / double(inputs.size());
      for (size_t l = p_.layers.size(); l-- > 0;) {
        const ChainLayer& layer = p_.layers[l];
        std::vector<double> below(size_t(layer.in));
        for (int64_t o = 0; o < layer.out; ++o) {
          const double at = d[size_t(o)] * slope(layer.activation, z[l][size_t(o)]);
          if (layer.bias >= 0) g[size_t(layer.bias + o)] += at;
          for (int64_t i = 0; i < layer.in; ++i) {
            g[size_t(layer.weight + o * layer.in + i)] += at * x[l][size_t(i)];
            below[size_t(i)] += at * w[size_t(layer.weight + o * layer.in + i)];
          }
        }
        d = below;
      }
    }
    return loss;
  }
};

template <class T>
void check_cohort(unsigned seed) {
  // Differences give derivatives to 1e-10 or so; a float's rounding grows over the steps.
  const double tolerance = sizeof(T) == 8 ? 1e-8 : 3e-4;
  Cohort<T> cohort(seed);
  const auto found = cohort.run(arrays::serial());
  for (int64_t k = 0; k < cohort.p.clients; ++k) {
    const Definition<T> expected(cohort, k);
    double worst = std::fabs(found.distances[size_t(k)] - expected.distance);
    for (int64_t j = 0; j < cohort.p.size; ++j)
      worst = std::max(worst, std::fabs(double(found.ends[size_t(k * cohort.p.size + j)]) - expected.w[size_t(j)]));
    for (int64_t s = 0; s < cohort.p.steps; ++s) {
      const bool done = s >= int64_t(expected.losses.size());
      const size_t at = size_t(k * cohort.p.steps + s);
      worst = std::max(worst, std::fabs(double(found.losses[at]) - (done ? 0 : expected.losses[size_t(s)])));
      worst = std::max(worst, std::fabs(found.norms[at] - (done ? 0 : expected.norms[size_t(s)])));
    }
    CHECK(worst < tolerance, "differs from the definition", seed, k, worst);
  }
  for (int threads : {2, 4})
    CHECK(cohort.run(arrays::threaded(threads, seed)) == found, "bits depend on threads", seed);
}

void check_stop() {
  Cohort<float> cohort(1);
  cohort.epochs.assign(cohort.epochs.size(), 1 << 20);
  cohort.orders.clear();
  for (int64_t n : cohort.sizes)
    for (int e = 0; e < 1 << 20; ++e)
      for (int64_t i = 0; i < n; ++i) cohort.orders.push_back(i);
  int asked = 0;
  cohort.p.stop = [&] { return ++asked == 2; };
  ChainTraining& p = cohort.p;
  p.start = cohort.start.data();
  p.inputs = cohort.inputs.data();
  p.targets = cohort.targets.data();
  p.sizes = cohort.sizes.data();
  p.epochs = cohort.epochs.data();
  p.orders = cohort.orders.data();
  for (int64_t k = 0; k < p.clients; ++k) p.steps = std::max(p.steps, steps_of(p, k));
  std::vector<float> ends(size_t(p.clients * p.size)), losses(size_t(p.clients * p.steps));
  std::vector<double> distances(static_cast<size_t>(p.clients));
  p.ends = {ends.data(), p.size};
  p.losses = {losses.data(), false};
  p.distances = distances.data();
  CHECK(!cpu::train_clients(p, arrays::serial()), "stops", asked);
  p.stop = [&]() -> bool { throw std::runtime_error("asked"); };
  try {
    cpu::train_clients(p, arrays::serial());
    CHECK(false, "an error of stop is thrown on", asked);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "asked", "an error of stop is thrown on", error.what());
  }
}

void check_error() {
  Cohort<float> cohort(2);
  cohort.targets.back() = 1000;
  try {
    cohort.run(arrays::threaded(2, 1));
    CHECK(false, "a label that is no class is refused", 0);
  } catch (const std::invalid_argument& error) {
    const std::string name = "client " + std::to_string(cohort.p.clients - 1);
    CHECK(std::string(error.what()).find(name) == 0, "the error names the client", error.what());
  }
}

}  // namespace

int main() {
  if (check::skip()) return check::kSkip;
  for (unsigned seed = 0; seed < 60; ++seed) {
    check_cohort<double>(seed);
    check_cohort<float>(seed);
  }
  check_stop();
  check_error();
  return check::finish();
}
