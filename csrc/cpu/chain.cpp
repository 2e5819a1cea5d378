// The local training of a cohort on the CPU: a thread takes one client after the other, and a client's parameters stay
// in that core's own cache for all of its epochs.
#include "chain.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "../update/formulas.h"
#include "asd.h"
#include "batch.h"

namespace fedasd::cpu {
namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

template <class T>
class Buffer {
 public:
  Buffer() = default;
  // Zeros.
  explicit Buffer(int64_t size)
      : memory_(static_cast<T*>(::operator new(size_t(size) * sizeof(T), std::align_val_t(kAlignment)))) {
    std::fill_n(memory_.get(), size, T(0));
  }
  T* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };
  std::unique_ptr<T, Free> memory_;
};

template <class T>
const ChainKernels<T>& chain_kernels() {
  if constexpr (sizeof(T) == 4) return kernels().chain_f32;
  else return kernels().chain_f64;
}

int64_t padded(int64_t n, int64_t lanes) { return (n + lanes - 1) / lanes * lanes; }

// How a client's parameters lie while it trains: each layer's weights transposed, [in, out], and its bias as one more
// row, with padded rows.  Padding stays 0: its gradient is 0, and the update is elementwise.
template <class T>
class Packing {
 public:
  struct Layer {
    int64_t in, out, rows, stride, begin;  // rows: in, and 1 for the bias
    Activation activation;
  };

  explicit Packing(const ChainTraining& p) : problem_(p) {
    for (const ChainLayer& layer : p.layers) {
      const int64_t rows = layer.in + (layer.bias >= 0), stride = padded(layer.out, chain_kernels<T>().lanes);
      layers.push_back({layer.in, layer.out, rows, stride, size, layer.activation});
      size += rows * stride;
      widest = std::max({widest, layer.in, layer.out});
    }
  }

  void pack(const void* from, T* to) const {
    each([&](const ChainLayer& layer, const Layer& own) {
      const T* const vector = static_cast<const T*>(from);
      transpose(vector + layer.weight, layer.in, to + own.begin, own.stride, layer.out, layer.in);
      if (layer.bias >= 0) std::copy_n(vector + layer.bias, layer.out, to + own.begin + layer.in * own.stride);
    });
  }
  void unpack(const T* from, void* to) const {
    each([&](const ChainLayer& layer, const Layer& own) {
      T* const vector = static_cast<T*>(to);
      transpose(from + own.begin, own.stride, vector + layer.weight, layer.in, layer.in, layer.out);
      if (layer.bias >= 0) std::copy_n(from + own.begin + layer.in * own.stride, layer.out, vector + layer.bias);
    });
  }

  std::vector<Layer> layers;
  int64_t size = 0, widest = 0;

 private:
  template <class F>
  void each(F f) const {
    for (size_t l = 0; l < layers.size(); ++l) f(problem_.layers[l], layers[l]);
  }
  static void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
    chain_kernels<T>().transpose(from, from_stride, to, to_stride, rows, columns);
  }
  const ChainTraining& problem_;
};

// Where each client's samples, orders and losses begin.
struct Places {
  explicit Places(const ChainTraining& p) : samples(size_t(p.clients)), orders(size_t(p.clients)) {
    int64_t sample = 0, order = 0;
    for (int64_t k = 0; k < p.clients; ++k) {
      samples[size_t(k)] = sample;
      orders[size_t(k)] = order;
      sample += p.sizes[k];
      order += p.sizes[k] * p.epochs[k];
      largest = std::max(largest, p.sizes[k]);
    }
  }
  std::vector<int64_t> samples, orders;
  int64_t largest = 0;
};

// What one thread needs to train a client, allocated once for all of its clients.
template <class T>
class Trainer {
 public:
  Trainer(const ChainTraining& p, const Packing<T>& packing, const T* start, const Places& places)
      : p_(p), packing_(packing), start_(start), places_(places), batch_(std::min(p.batch_size, places.largest)),
        batch_stride_(padded(batch_, run_.lanes)), w_(packing.size), g_(packing.size), labels_(batch_),
        logits_gradient_(batch_ * classes()), gradient_(batch_ * padded(packing.widest, run_.lanes)),
        gradient_columns_(packing.widest * batch_stride_), input_columns_(packing.widest * batch_stride_) {
    if (p.momentum != 0) velocity_ = Buffer<T>(packing.size);
    if (p.rho != 0) saved_ = Buffer<T>(packing.size);
    if (p.linear.data) linear_ = Buffer<T>(packing.size);
    for (const auto& layer : packing.layers) {
      x_.emplace_back(batch_ * x_stride(layer.in));
      const bool keeps = layer.activation != Activation::none && layer.activation != Activation::relu;
      derivatives_.push_back(keeps ? Buffer<T>(batch_ * layer.stride) : Buffer<T>());
    }
    x_.emplace_back(batch_ * x_stride(classes()));
    if (!p.distils()) return;
    teacher_logits_ = Buffer<T>(places.largest * classes());
    teacher_ = Buffer<T>(places.largest * classes());
    prior_ = Buffer<T>(classes());
    constant_ = Buffer<double>(places.largest);
    log_weight_ = Buffer<double>(places.largest);
  }

  // f() before every step: true stops.
  template <class F>
  bool train(int64_t k, F stopped) {
    const int64_t n = p_.sizes[k];
    begin(k);
    const int64_t* order = p_.orders + places_.orders[size_t(k)];
    int64_t step = 0;
    for (int64_t epoch = 0; epoch < p_.epochs[k]; ++epoch, order += n)
      for (int64_t i = 0; i < n; i += p_.batch_size, ++step) {
        if (stopped()) return false;
        take_step(order + i, std::min(p_.batch_size, n - i), step);
      }
    packing_.unpack(w_.get(), p_.ends.client(k, p_.type));
    p_.distances[k] = distance();
    for (; step < p_.steps; ++step) record(step, 0, 0);
    return true;
  }

 private:
  using Layer = typename Packing<T>::Layer;

  int64_t classes() const { return p_.layers.back().out; }
  // A row of a layer's input has a 1 behind it, which the bias is multiplied with.
  int64_t x_stride(int64_t width) const { return padded(width + 1, run_.lanes); }

  void begin(int64_t k) {
    client_ = k;
    inputs_ = static_cast<const T*>(p_.inputs) + places_.samples[size_t(k)] * p_.layers[0].in;
    targets_ = p_.targets + places_.samples[size_t(k)];
    update_ = {};
    update_.type = p_.type;
    update_.w = w_.get();
    update_.g = g_.get();
    update_.quadratic = p_.quadratic;
    update_.momentum = p_.momentum;
    update_.decay = p_.decay.at(k);
    update_.lr = p_.lr;
    if (p_.linear.data) {
      packing_.pack(p_.linear.client(k, p_.type), linear_.get());
      update_.linear = linear_.get();
    }
    if (p_.momentum != 0) {
      std::fill_n(velocity_.get(), packing_.size, T(0));
      update_.velocity = velocity_.get();
    }
    std::copy_n(start_, packing_.size, w_.get());
    if (p_.distils()) build_teacher(p_.sizes[k]);
  }

  // The global model's outputs on all samples of the client, kept as the teacher of all its steps.
  void build_teacher(int64_t n) {
    const int64_t c = classes();
    std::fill_n(prior_.get(), c, T(0));
    for (int64_t i = 0; i < n; ++i)
      if (targets_[i] >= 0 && targets_[i] < c) prior_.get()[targets_[i]] += T(1);
    for (int64_t i = 0; i < c; ++i) prior_.get()[i] /= T(n);
    for (int64_t i = 0; i < n; i += batch_) {
      const int64_t rows = std::min(batch_, n - i);
      for (int64_t r = 0; r < rows; ++r) load_input(i + r, r);
      forward(rows);
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(logits() + r * x_stride(c), c, teacher_logits_.get() + (i + r) * c);
    }
    CacheProblem cache;
    cache.options = p_.options;
    cache.samples = n;
    cache.classes = c;
    cache.teacher.first = {teacher_logits_.get(), p_.type, c, 1};
    cache.targets = {targets_, true, 0, 1};
    cache.label_prior = {prior_.get(), sizeof(T) == 8, 0, 1};
    cache.rows = {teacher_.get(), p_.type, false};
    cache.constant = constant_.get();
    cache.log_weight = log_weight_.get();
    build_cache(cache, {});
  }

  void take_step(const int64_t* rows, int64_t count, int64_t step) {
    for (int64_t r = 0; r < count; ++r) {
      load_input(rows[r], r);
      labels_.get()[r] = targets_[rows[r]];
    }
    const double loss = backward(rows, count);
    const UpdateKernels& run = kernels().update;
    if (p_.rho != 0) {
      ClientUpdate ascent;
      ascent.type = p_.type;
      ascent.w = w_.get();
      ascent.g = g_.get();
      ascent.saved = saved_.get();
      ascent.factor = ascent_factor(norm(run, ascent, packing_.size, nullptr), p_.rho, p_.rho_epsilon);
      run.ascend(ascent, 0, packing_.size);
      backward(rows, count);
      std::copy_n(saved_.get(), packing_.size, w_.get());
    }
    double length = 0;
    update_.factor = 1;
    if (p_.clip != 0 || p_.norms) length = norm(run, update_, packing_.size, nullptr);
    if (p_.clip != 0) update_.factor = clip_factor(length, p_.clip);
    run.step(update_, 0, packing_.size);
    record(step, loss, length);
  }

  // ||w - start||, by the kernel of ||g + a w||: with g = -start and a = 1.
  double distance() {
    std::transform(start_, start_ + packing_.size, g_.get(), [](T x) { return -x; });
    ClientUpdate difference;
    difference.type = p_.type;
    difference.w = w_.get();
    difference.g = g_.get();
    difference.quadratic = 1;
    return norm(kernels().update, difference, packing_.size, nullptr);
  }

  void record(int64_t step, double loss, double norm) {
    p_.losses.set(client_ * p_.steps + step, loss);
    if (p_.norms) p_.norms[client_ * p_.steps + step] = norm;
  }

  void load_input(int64_t sample, int64_t row) {
    const int64_t width = p_.layers[0].in;
    T* const to = x_[0].get() + row * x_stride(width);
    std::copy_n(inputs_ + sample * width, width, to);
    to[width] = 1;
  }
  const T* logits() const { return x_.back().get(); }

  void forward(int64_t rows) {
    for (size_t l = 0; l < packing_.layers.size(); ++l) {
      const Layer& layer = packing_.layers[l];
      const int64_t stride = x_stride(layer.out);
      T* const y = x_[l + 1].get();
      run_.multiply(x_[l].get(), x_stride(layer.in), 1, w_.get() + layer.begin, layer.stride, y, stride, rows,
                    layer.stride, layer.rows);
      if (layer.activation != Activation::none)
        run_.activate(layer.activation, y, stride, derivatives_[l].get(), layer.stride, rows, layer.stride);
      for (int64_t r = 0; r < rows; ++r) y[r * stride + layer.out] = 1;
    }
  }

  // The loss of the batch whose inputs and labels are loaded; leaves its gradient in g_.
  double backward(const int64_t* rows, int64_t count) {
    forward(count);
    const double loss = differentiate_loss(rows, count);
    const int64_t c = classes();
    T* const gradient = gradient_.get();  // of the output of layer l, [count, layer.stride]
    for (int64_t r = 0; r < count; ++r) {
      std::copy_n(logits_gradient_.get() + r * c, c, gradient + r * packing_.layers.back().stride);
      std::fill_n(gradient + r * packing_.layers.back().stride + c, packing_.layers.back().stride - c, T(0));
    }
    for (size_t l = packing_.layers.size(); l-- > 0;) {
      const Layer& layer = packing_.layers[l];
      const int64_t stride = x_stride(layer.out);
      if (layer.activation != Activation::none)
        run_.chain_rule(layer.activation, gradient, layer.stride, x_[l + 1].get(), stride, derivatives_[l].get(),
                        layer.stride, count, layer.stride);
      run_.multiply(x_[l].get(), 1, x_stride(layer.in), gradient, layer.stride, g_.get() + layer.begin, layer.stride,
                    layer.rows, layer.stride, count);
      if (l == 0) break;
      const int64_t columns = padded(count, run_.lanes), below = packing_.layers[l - 1].stride;
      run_.transpose(gradient, layer.stride, gradient_columns_.get(), columns, count, layer.out);
      run_.multiply(w_.get() + layer.begin, layer.stride, 1, gradient_columns_.get(), columns, input_columns_.get(),
                    columns, layer.in, columns, layer.out);
      run_.transpose(input_columns_.get(), columns, gradient, below, layer.in, count);
      for (int64_t r = 0; r < count; ++r) std::fill_n(gradient + r * below + layer.in, below - layer.in, T(0));
    }
    return loss;
  }

  double differentiate_loss(const int64_t* rows, int64_t count) {
    double loss = 0;
    Problem problem;
    problem.options = p_.options;
    problem.batch = count;
    problem.classes = classes();
    problem.student.first = {logits(), p_.type, x_stride(classes()), 1};
    problem.targets = {labels_.get(), true, 0, 1};
    problem.teacher_rows = TeacherRows::none;
    if (p_.distils()) {
      problem.teacher_rows = TeacherRows::probabilities;
      problem.teacher.first = {teacher_.get(), p_.type, classes(), 1};
      problem.cached = p_.sizes[client_];
      problem.rows = {rows, true, 0, 1};
      problem.cache_targets = {targets_, true, 0, 1};
      problem.cache_constant = {constant_.get(), true, 0, 1};
      problem.cache_log_weight = {log_weight_.get(), true, 0, 1};
    }
    problem.loss = {&loss, true};
    problem.gradient = logits_gradient_.get();
    loss_and_gradient(problem, {});
    return loss;
  }

  const ChainTraining& p_;
  const Packing<T>& packing_;
  const T* start_;
  const Places& places_;
  const ChainKernels<T>& run_ = chain_kernels<T>();
  int64_t batch_, batch_stride_;
  Buffer<T> w_, g_, velocity_, saved_, linear_;
  std::vector<Buffer<T>> x_, derivatives_;  // x_[l]: the input of layer l; the last one: the logits
  Buffer<int64_t> labels_;
  Buffer<T> logits_gradient_, gradient_, gradient_columns_, input_columns_;  // *_columns_: transposed
  Buffer<T> teacher_logits_, teacher_, prior_;
  Buffer<double> constant_, log_weight_;
  ClientUpdate update_;
  int64_t client_ = 0;
  const T* inputs_ = nullptr;
  const int64_t* targets_ = nullptr;
};

// Ends all threads of a call: when the caller wants to stop, or one of them failed.
class Ending {
 public:
  explicit Ending(const std::function<bool()>& asked) : asked_(asked) {}

  bool asks() const { return asked_ && std::this_thread::get_id() == caller_; }
  bool reached() {
    if (asks() && due()) {
      stopped = asked_();
      if (stopped) over_ = true;
    }
    return over_.load(std::memory_order_relaxed);
  }
  void fail(int64_t client, std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_ || client < client_) {
      error_ = error;
      client_ = client;
    }
    over_ = true;
  }
  void rethrow() {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("client " + std::to_string(client_) + " of the cohort: " + error.what());
    }
  }
  bool stopped = false;

 private:
  using Clock = std::chrono::steady_clock;
  bool due() {
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return false;
    last_ = now;
    return true;
  }
  const std::function<bool()>& asked_;
  const std::thread::id caller_ = std::this_thread::get_id();
  Clock::time_point last_ = Clock::now();
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  int64_t client_ = 0;
};

template <class T>
bool train_clients(const ChainTraining& p, const Parallel& parallel) {
  const Packing<T> packing(p);
  const Buffer<T> start(packing.size);
  packing.pack(p.start, start.get());
  const Places places(p);
  Ending ending(p.stop);
  std::atomic<int64_t> next{0}, working{0};
  // Clients differ in size: whoever is free takes the next one.
  auto work = [&] {
    ++working;
    int64_t k = 0;
    try {
      Trainer<T> trainer(p, packing, start.get(), places);
      while ((k = next++) < p.clients)
        if (!trainer.train(k, [&] { return ending.reached(); })) break;
    } catch (...) {
      ending.fail(k, std::current_exception());
    }
    --working;
    // The calling thread alone may ask whether to stop, so it goes on asking while others finish their last client.
    try {
      while (ending.asks() && working.load() > 0 && !ending.reached()) std::this_thread::yield();
    } catch (...) {
      ending.fail(k, std::current_exception());
    }
  };
  const int64_t threads = std::min<int64_t>(parallel.threads, p.clients);
  if (threads > 1) {
    parallel.run(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) work();
    });
  } else {
    work();
  }
  ending.rethrow();
  return !ending.stopped;
}

}  // namespace

bool train_clients(const ChainTraining& p, const Parallel& parallel) {
  if (p.clients == 0) return true;
  return p.type == DType::f64 ? train_clients<double>(p, parallel) : train_clients<float>(p, parallel);
}

}  // namespace fedasd::cpu
