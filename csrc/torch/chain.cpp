// The op of a cohort's local training: argument checks and schema.
#include "chain.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "../cuda/train_clients_layout.h"
#include "checks.h"
#include "memory.h"

namespace fedasd {
namespace {

constexpr int64_t kLayerNumbers = 5;

void check_tensor(const at::Tensor& t, at::Device device, at::ScalarType type, int64_t dim, const char* name) {
  TORCH_CHECK_VALUE(t.scalar_type() == type, name, " has dtype ", t.scalar_type(), "; expected ", type);
  TORCH_CHECK_VALUE(t.dim() == dim, name, " has shape ", t.sizes(), "; expected ", dim, " dimension(s)");
  TORCH_CHECK_VALUE(t.is_contiguous(), name, " has strides ", t.strides(), "; call .contiguous()");
  TORCH_CHECK_VALUE(t.device() == device, name, " is on ", t.device(), "; expected ", device, ", where start is");
  check_memory(t, name);
}
void check_length(const at::Tensor& t, int64_t expected, const char* name, const char* meaning) {
  TORCH_CHECK_VALUE(t.size(0) == expected, name, " has length ", t.size(0), "; expected ", expected, " (", meaning,
                    ")");
}
void check_number(double x, double least, const char* name) {
  TORCH_CHECK_VALUE(std::isfinite(x) && x >= least, name, " = ", x, "; expected a finite number of ", least,
                    " or more");
}

// [begin, begin + length) lies in a vector of `size`; without an overflow.
bool inside(int64_t begin, int64_t length, int64_t size) {
  return begin >= 0 && length <= size && begin <= size - length;
}

void read_layers(at::IntArrayRef numbers, int64_t width, ChainTraining& p) {
  TORCH_CHECK_VALUE(!numbers.empty() && numbers.size() % kLayerNumbers == 0, "layers has ", numbers.size(),
                    " numbers; expected five for each layer: in, out, weight, bias, activation");
  for (size_t i = 0; i < numbers.size(); i += kLayerNumbers) {
    ChainLayer layer{numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], Activation::none};
    const size_t l = p.layers.size();
    TORCH_CHECK_VALUE(layer.in == width, "layer ", l, " takes ", layer.in, " numbers; expected ", width,
                      ", as many as come to it");
    TORCH_CHECK_VALUE(layer.in > 0 && layer.out > 0 && layer.in <= p.size / layer.out &&
                          inside(layer.weight, layer.in * layer.out, p.size) && layer.bias >= -1 &&
                          (layer.bias < 0 || inside(layer.bias, layer.out, p.size)),
                      "layer ", l, " (", layer.in, " to ", layer.out, ", weight at ", layer.weight, ", bias at ",
                      layer.bias, ") does not lie in the ", p.size, " numbers of start");
    const int64_t activation = numbers[i + 4];
    TORCH_CHECK_VALUE(activation >= 0 && activation < kActivations, "layer ", l, " has the activation ", activation,
                      "; expected 0 to ", kActivations - 1);
    layer.activation = Activation(activation);
    p.layers.push_back(layer);
    width = layer.out;
  }
}

// What would make the kernels read beyond the arrays.
void check_clients(const ChainTraining& p) {
  const int64_t* order = p.orders;
  int64_t sample_left = p.samples, order_left = p.ordered;
  for (int64_t k = 0; k < p.clients; ++k) {
    const int64_t n = p.sizes[k], e = p.epochs[k];
    TORCH_CHECK_VALUE(n > 0 && n <= sample_left, "sizes[", k, "] = ", n, "; expected 1 to the ", sample_left,
                      " samples that are left");
    TORCH_CHECK_VALUE(e > 0 && e <= order_left / n, "epochs[", k, "] = ", e, " over ", n,
                      " samples; expected 1 or more, and orders has ", order_left, " numbers left");
    TORCH_CHECK_VALUE(steps_of(p, k) <= p.steps, "client ", k, " has ", steps_of(p, k), " steps; steps = ", p.steps);
    for (int64_t i = 0; i < n * e; ++i)
      TORCH_CHECK_VALUE(order[i] >= 0 && order[i] < n, "an order of client ", k, " has the number ", order[i],
                        "; expected 0 to ", n - 1);
    order += n * e;
    order_left -= n * e;
    sample_left -= n;
    TORCH_CHECK_VALUE(std::isfinite(p.decay.at(k)), "decays[", k, "] = ", p.decay.at(k), "; expected a finite number");
  }
  TORCH_CHECK_VALUE(sample_left == 0, "inputs has ", p.samples, " samples, ", sample_left, " more than sizes");
  TORCH_CHECK_VALUE(order_left == 0, "orders has ", p.ordered, " numbers, ", order_left,
                    " more than sizes times epochs");
}

}  // namespace

Training read_training(FEDASD_TRAIN_PARAMETERS) {
  Training training;
  ChainTraining& p = training.problem;
  const auto type = start.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kDouble, "start has dtype ", type,
                    "; expected float32 or float64");
  const auto device = start.device();
  check_tensor(start, device, type, 1, "start");
  check_tensor(inputs, device, type, 2, "inputs");
  check_tensor(targets, device, at::kLong, 1, "targets");
  check_tensor(sizes, device, at::kLong, 1, "sizes");
  check_tensor(epochs, device, at::kLong, 1, "epochs");
  check_tensor(orders, device, at::kLong, 1, "orders");
  check_tensor(decays, device, at::kDouble, 1, "decays");
  p.type = type == at::kDouble ? DType::f64 : DType::f32;
  p.clients = sizes.size(0);
  p.size = start.size(0);
  check_length(epochs, p.clients, "epochs", "one number a client");
  check_length(decays, p.clients, "decays", "one number a client");
  check_length(targets, inputs.size(0), "targets", "one a sample");
  read_layers(layers, inputs.size(1), p);
  TORCH_CHECK_VALUE(batch_size > 0, "batch_size = ", batch_size, "; expected 1 or more");
  TORCH_CHECK_VALUE(steps >= 0, "steps = ", steps, "; expected 0 or more");
  check_number(lr, 0, "lr");
  check_number(momentum, 0, "momentum");
  check_number(rho_epsilon, 0, "rho_epsilon");
  TORCH_CHECK_VALUE(std::isfinite(quadratic), "quadratic = ", quadratic, "; expected a finite number");
  TORCH_CHECK_VALUE(std::isfinite(rho), "rho = ", rho, "; expected a finite number");
  TORCH_CHECK_VALUE(!clip_norm || (*clip_norm > 0 && std::isfinite(*clip_norm)), "clip_norm = ", *clip_norm,
                    "; expected a positive finite number, or None");
  p.options = check_options(asd_weight, 1.0, temperature, entropy_temperature, entropy_power, prior_power, weighting,
                            divergence, not_true, -100);
  p.start = start.const_data_ptr();
  p.inputs = inputs.const_data_ptr();
  p.targets = targets.const_data_ptr<int64_t>();
  p.sizes = sizes.const_data_ptr<int64_t>();
  p.epochs = epochs.const_data_ptr<int64_t>();
  p.orders = orders.const_data_ptr<int64_t>();
  p.samples = inputs.size(0);
  p.ordered = orders.size(0);
  p.decay.each = decays.const_data_ptr<double>();
  p.batch_size = batch_size;
  p.steps = steps;
  p.lr = lr;
  p.quadratic = quadratic;
  p.momentum = momentum;
  p.clip = clip_norm.value_or(0);
  p.rho = rho;
  p.rho_epsilon = rho_epsilon;
  if (linear) {
    check_tensor(*linear, device, type, 2, "linear");
    TORCH_CHECK_VALUE(linear->size(0) == p.clients && linear->size(1) == p.size, "linear has shape ", linear->sizes(),
                      "; expected [", p.clients, ", ", p.size, "]");
    p.linear = {linear->const_data_ptr(), p.size};
  }
  if (device.is_cpu()) check_clients(p);  // a GPU's kernel looks for itself: reading its memory here would wait for it
  training.ends = at::empty({p.clients, p.size}, start.options());
  training.losses = at::empty({p.clients, steps}, start.options());
  training.norms = at::empty({p.clients, steps}, start.options().dtype(at::kDouble));
  training.distances = at::empty({p.clients}, start.options().dtype(at::kDouble));
  p.distances = training.distances.mutable_data_ptr<double>();
  p.ends = {training.ends.mutable_data_ptr(), p.size};
  p.losses = {training.losses.mutable_data_ptr(), p.type == DType::f64};
  p.norms = training.norms.mutable_data_ptr<double>();
  return training;
}

std::string why_not_trained_on_gpu(at::IntArrayRef layers, int64_t batch_size, bool f64, int64_t limit) {
  ChainTraining p;
  p.size = std::numeric_limits<int64_t>::max();  // wherever they lie
  read_layers(layers, layers.empty() ? 0 : layers[0], p);
  p.type = f64 ? DType::f64 : DType::f32;
  p.batch_size = batch_size;
  return cuda::why_not_trained(p, limit);
}

std::function<bool()>& training_stop() {
  thread_local std::function<bool()> stop;
  return stop;
}

TORCH_LIBRARY_FRAGMENT(fedasd, m) { m.def("train_clients" FEDASD_TRAIN_SCHEMA); }

}  // namespace fedasd
