// Host side of the local training of a cohort on a GPU: lays out a client's shared memory, and launches.
#include "train_clients.cuh"

#include <algorithm>

#include "api.h"
#include "platform.cuh"

namespace fedasd::cuda {
namespace {

// One for each tile of the largest layer's weights, within limits: fewer leave rows of the loss to wait for each other.
// It depends on the network and its type alone, and so do the bits.
template <class T>
int train_threads(const ChainTraining& p) {
  int64_t tiles = 0;
  for (const ChainLayer& layer : p.layers) tiles = std::max(tiles, fours(layer.in) / 4 * (fours(layer.out) / 4));
  return int(std::clamp<int64_t>((tiles + kWarp - 1) / kWarp * kWarp, 128, kTrainThreads<T>));
}

template <class T>
void train(const ChainTraining& p, int threads, const Allocate& allocate, cudaStream_t stream) {
  Problem loss;
  loss.options = effective(p.options, p.layers.back().out);
  loss.teacher_rows = p.distils() ? TeacherRows::probabilities : TeacherRows::none;
  TrainParameters<T> t(loss);
  t.layout = layout_of(p);
  t.size = p.size;
  t.samples = p.samples;
  t.ordered = p.ordered;
  t.steps = p.steps;
  t.batch_size = int(p.batch_size);
  t.lr = T(p.lr);
  t.quadratic = T(p.quadratic);
  t.momentum = T(p.momentum);
  t.clip = p.clip;
  t.rho = p.rho;
  t.rho_epsilon = p.rho_epsilon;
  t.decay = p.decay.each;
  t.start = static_cast<const T*>(p.start);
  t.inputs = static_cast<const T*>(p.inputs);
  t.linear = static_cast<const T*>(p.linear.data);
  t.linear_stride = p.linear.client_stride;
  t.targets = p.targets;
  t.sizes = p.sizes;
  t.epochs = p.epochs;
  t.orders = p.orders;
  t.ends = static_cast<T*>(p.ends.data);
  t.losses = p.losses;
  t.norms = p.norms;
  t.distances = p.distances;

  const int64_t numbers = p.distils() ? 2 * p.samples : 0, rows = p.distils() ? p.samples * p.layers.back().out : 0,
                velocities = p.momentum != 0 ? p.clients * p.size : 0;
  t.teacher = t.velocity = nullptr;
  t.teacher_constant = t.teacher_log_weight = nullptr;
  if (numbers + rows + velocities > 0) {
    void* const memory = allocate(size_t(numbers) * sizeof(double) + size_t(rows + velocities) * sizeof(T));
    double* const constants = static_cast<double*>(memory);  // what needs most alignment comes first
    T* const vectors = reinterpret_cast<T*>(constants + numbers);
    if (p.distils()) t.teacher_constant = constants, t.teacher_log_weight = constants + p.samples, t.teacher = vectors;
    if (velocities > 0) t.velocity = vectors + rows;
  }
  launch(train_clients_kernel<T>, p.clients, threads, false, stream, t, t.layout.bytes);
}

}  // namespace

void train_clients(const ChainTraining& p, const Allocate& allocate, cudaStream_t stream) {
  if (p.clients == 0) return;
  const std::string reason = why_not_trained(p, shared_limit());
  if (!reason.empty()) throw std::runtime_error("fedasd_fast: " + reason);
  if (p.type == DType::f64) train<double>(p, train_threads<double>(p), allocate, stream);
  else train<float>(p, train_threads<float>(p), allocate, stream);
}

}  // namespace fedasd::cuda
