// The local training of a cohort in one launch: a block trains one client, over all of its epochs.
//
// Its parameters stay in the multiprocessor's shared memory, and so do the activations of a batch.  The bits of a
// client's result depend on the client and the network alone: every sum has a fixed order, and the number of threads
// follows from the network (train_clients.cu).
#pragma once

#include "train_clients_loss.cuh"
#include "train_clients_products.cuh"
#include "train_clients_update.cuh"

namespace fedasd::cuda {

// At most: a float's thread has 128 registers then, a double's 255.
template <class T>
constexpr int kTrainThreads = sizeof(T) == sizeof(double) ? 256 : 512;

// Where this client's samples and orders begin: behind those of the clients before it.
template <class T>
__device__ __forceinline__ void find_client(ClientBlock<T>& b, TrainScratch& scratch) {
  int64_t before[2] = {0, 0};
  for (int64_t k = b.thread; k < b.client; k += b.threads) {
    before[0] += b.p.sizes[k];
    before[1] += b.p.sizes[k] * b.p.epochs[k];
  }
  block_reduce(before, scratch.places, int64_t(0), Add{});
  const int64_t n = b.p.sizes[b.client], epochs = b.p.epochs[b.client], samples = b.p.samples - before[0],
                ordered = b.p.ordered - before[1];
  const bool samples_and_orders_are_in_the_arrays = before[0] >= 0 && before[1] >= 0 && n > 0 && n <= INT32_MAX / 2 &&
                                                    n <= samples && epochs > 0 && epochs <= ordered / n;
  FEDASD_DEVICE_ASSERT(samples_and_orders_are_in_the_arrays);
  const bool steps_fit = epochs * ((n + b.p.batch_size - 1) / b.p.batch_size) <= b.p.steps;
  FEDASD_DEVICE_ASSERT(steps_fit);
  b.first_sample = before[0];
  b.first_order = before[1];
  b.n = samples_and_orders_are_in_the_arrays && steps_fit ? int(n) : 0;  // should a build have no asserts
}

// Inputs and labels of `count` samples: those that `order` names, or from `first` on without one.
template <class T>
__device__ __forceinline__ void load_batch(const ClientBlock<T>& b, const int64_t* order, int first, int count) {
  const int width = b.layer(0).in;
  for (int r = b.warp; r < count; r += b.warps) {
    int64_t row = order ? order[first + r] : first + r;
    const bool order_names_a_sample = row >= 0 && row < b.n;
    FEDASD_DEVICE_ASSERT(order_names_a_sample);
    if (!order_names_a_sample) row = 0;
    const T* const from = b.p.inputs + (b.first_sample + row) * width;
    T* const to = b.input(0, r);
    for (int i = b.lane; i < width; i += kWarp) to[i] = from[i];
    if (b.lane > 0) continue;
    b.rows[r] = int(row);
    b.labels[r] = checked_label(b.p.targets[b.first_sample + row], b.classes(), b.p.loss.problem.options.ignore_index);
  }
  // Hazard (read after write): every thread reads the inputs and labels of all rows.
  __syncthreads();
}

template <class T>
__device__ __forceinline__ void take_step(const ClientBlock<T>& b, const ClientUpdater<T>& updater,
                                          TrainScratch& scratch, int count, int64_t step) {
  const TrainParameters<T>& p = b.p;
  const bool ascends = p.rho != 0, needs_norm = p.clip != 0 || p.norms;
  double loss = 0, norm = 0;
#pragma unroll 1  // one copy of the passes, for the ascent and for the step
  for (int pass = ascends ? 0 : 1; pass < 2; ++pass) {
    forward(b, count);
    double sums[2] = {differentiate_loss(b, count), 0};  // the loss, and squares
    backward(b, count);
    if (pass == 0) sums[1] = updater.gradient_squares(count);
    else if (needs_norm || ascends) sums[1] = updater.update_squares(count, ascends);
    block_reduce(sums, scratch.sums, 0.0, Add{});
    norm = sqrt(sums[1]);
    if (pass == 0 || !ascends) loss = sums[0];
    if (pass == 0) updater.ascend(count, T(ascent_factor(norm, p.rho, p.rho_epsilon)));
    else updater.step(count, p.clip == 0 ? T(1) : T(clip_factor(norm, p.clip)));
    // Hazard (read after write): what comes next multiplies with weights that all threads have moved.  Also write after
    // read: it replaces inputs and gradients that slow threads are still moving weights by.
    __syncthreads();
  }
  if (b.thread > 0) return;
  p.losses.set(b.client * p.steps + step, loss);
  if (p.norms) p.norms[b.client * p.steps + step] = norm;
}

template <class T>
__global__ void __launch_bounds__(kTrainThreads<T>, 1) train_clients_kernel(const TrainParameters<T> p) {
  FEDASD_SHARED(TrainScratch, scratch);
  FEDASD_DYNAMIC_SHARED(shared);
  ClientBlock<T> b(p, shared);
  find_client(b, scratch);
  for (int i = b.thread; i < p.layout.elements; i += b.threads) b.memory[i] = 0;
  // Hazard (write after write): parameters and inputs take the place of zeros that other threads wrote.
  __syncthreads();
  const ClientUpdater<T> updater(b);
  updater.begin();
  if (p.teacher) {
    for (int first = 0; first < b.n; first += p.layout.batch) {
      const int count = min(p.layout.batch, b.n - first);
      load_batch(b, nullptr, first, count);
      forward(b, count);
      build_teacher(b, first, count);
    }
  }
  const int64_t* order = p.orders + b.first_order;
  int64_t step = 0;
  for (int64_t epoch = 0; b.n > 0 && epoch < p.epochs[b.client]; ++epoch, order += b.n)
    for (int first = 0; first < b.n; first += p.batch_size, ++step) {
      const int count = min(p.batch_size, b.n - first);
      load_batch(b, order, first, count);
      take_step(b, updater, scratch, count, step);
    }
  double sums[2] = {updater.finish(), 0};
  block_reduce(sums, scratch.sums, 0.0, Add{});
  for (int64_t s = step + b.thread; s < p.steps; s += b.threads) {
    p.losses.set(b.client * p.steps + s, 0);
    if (p.norms) p.norms[b.client * p.steps + s] = 0;
  }
  if (b.thread == 0) p.distances[b.client] = sqrt(sums[0]);
}

}  // namespace fedasd::cuda
