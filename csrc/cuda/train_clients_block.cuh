// A block that trains one client: the launch's parameters, and what all parts of the kernel need of it.
#pragma once

#include "../chain/problem.h"
#include "kernels.cuh"
#include "reduce.cuh"
#include "train_clients_layout.h"

namespace fedasd::cuda {

template <class T>
struct TrainParameters {
  TrainLayout layout;
  Parameters<T> loss;  // options and scales; its problem has no arrays
  int64_t size, samples, ordered, steps;
  int batch_size;
  T lr, quadratic, momentum;
  double clip, rho, rho_epsilon;
  const double* decay;
  const T *start, *inputs, *linear;
  int64_t linear_stride;
  const int64_t *targets, *sizes, *epochs, *orders;
  T *ends, *velocity;  // [clients, size]; velocity: null for none.  ends holds w while an ascent is in force
  T* teacher;          // [samples, classes] probabilities of the global model; null for none
  double *teacher_constant, *teacher_log_weight;  // [samples]
  Losses losses;
  double *norms, *distances;

  explicit TrainParameters(const Problem& problem) : loss(problem) {}
};

// Four neighbours, moved in words of 16 bytes.
template <class T>
struct Four {
  T at[4];
};
template <class W>
__device__ __forceinline__ W load_word(const W* from) {
#if defined(__CUDACC__)
  return *from;
#else
  return host_cuda::load(from, host_cuda::Memory::plain);  // one access, not one for each member
#endif
}
template <class W>
__device__ __forceinline__ void store_word(W* to, const W& word) {
#if defined(__CUDACC__)
  *to = word;
#else
  host_cuda::store(to, word, host_cuda::Memory::plain);
#endif
}
__device__ __forceinline__ Four<float> load_four(const float* from) {
  const float4 x = load_word(reinterpret_cast<const float4*>(from));
  return {{x.x, x.y, x.z, x.w}};
}
__device__ __forceinline__ Four<double> load_four(const double* from) {
  const double2 x = load_word(reinterpret_cast<const double2*>(from)),
                y = load_word(reinterpret_cast<const double2*>(from) + 1);
  return {{x.x, x.y, y.x, y.y}};
}
__device__ __forceinline__ void store_four(float* to, const Four<float>& x) {
  store_word(reinterpret_cast<float4*>(to), float4{x.at[0], x.at[1], x.at[2], x.at[3]});
}
__device__ __forceinline__ void store_four(double* to, const Four<double>& x) {
  store_word(reinterpret_cast<double2*>(to), double2{x.at[0], x.at[1]});
  store_word(reinterpret_cast<double2*>(to) + 1, double2{x.at[2], x.at[3]});
}

struct TrainScratch {
  BlockScratch<int64_t, 2> places;
  BlockScratch<double, 2> sums;
};
static_assert(sizeof(TrainScratch) <= kTrainScratch, "shared_bytes() counts it");

template <class T>
struct ClientBlock {
  const TrainParameters<T>& p;
  T* const memory;                 // shared, laid out by p.layout
  int *const rows, *const labels;  // [batch] shared: which samples of the client, and their labels (-1: ignored)
  const int64_t client = int(blockIdx.x);
  const int threads = int(blockDim.x), thread = int(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp,
            warps = threads / kWarp;
  int n = 0;  // samples
  int64_t first_sample = 0, first_order = 0;

  __device__ __forceinline__ ClientBlock(const TrainParameters<T>& parameters, unsigned char* shared)
      : p(parameters), memory(reinterpret_cast<T*>(shared)),
        rows(reinterpret_cast<int*>(shared + p.layout.elements * int64_t(sizeof(T)))), labels(rows + p.layout.batch) {}

  __device__ __forceinline__ const TrainLayer& layer(int l) const { return p.layout.layers[l]; }
  __device__ __forceinline__ int classes() const { return layer(p.layout.depth - 1).out; }

  // Row r of the inputs of layer l; l = depth: of the logits.
  __device__ __forceinline__ T* input(int l, int r) const {
    if (l == p.layout.depth) return memory + p.layout.logits + r * int(fours(classes()));
    return memory + layer(l).input + r * int(fours(layer(l).in));
  }
  __device__ __forceinline__ T* gradient(int l, int r) const {
    return memory + layer(l).gradient + r * int(fours(layer(l).out));
  }
};

}  // namespace fedasd::cuda
