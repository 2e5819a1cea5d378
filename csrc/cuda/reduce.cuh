// Sums and maxima over threads, always in the same order: a butterfly within a warp, then the warps in turn.
#pragma once

#include "platform.cuh"

namespace fedasd::cuda {

constexpr int kWarp = 32, kMaxWarps = 32;

// Over a group of `lanes` neighbouring lanes (a power of two); every lane gets the result.  `mask` names
// the group's lanes only: the other groups of the warp may be at another row or have left the loop.
template <int lanes, class T, class F>
__device__ __forceinline__ T group_reduce(unsigned mask, T x, F combine) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    // Each lane reads its partner's register; both combine the same two values, so all lanes agree
    // bit by bit (+ and max commute).
    x = combine(x, __shfl_xor_sync(mask, x, offset));
  }
  return x;
}

struct Add {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return larger(a, b);
  }
};

// Shared memory for the warps' values of `n` reductions at once.
template <class T, int n>
struct BlockScratch {
  T of_warp[n][kMaxWarps];
};

// Over the whole block, n values at once; every thread gets the results.  Every thread must call it.
template <class T, int n, class F>
__device__ __forceinline__ void block_reduce(T (&x)[n], BlockScratch<T, n>& scratch, T identity, F combine) {
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp, warps = int(blockDim.x) / kWarp;
  // Hazard (write after read): a slow warp may still be reading `scratch` from the previous reduction.
  __syncthreads();
#pragma unroll
  for (int i = 0; i < n; ++i) {
    x[i] = group_reduce<kWarp>(~0u, x[i], combine);
    if (lane == 0) scratch.of_warp[i][warp] = x[i];
  }
  // Hazard (read after write): the other warps' values are there only once all warps have arrived.
  __syncthreads();
#pragma unroll
  for (int i = 0; i < n; ++i)
    x[i] = group_reduce<kWarp>(~0u, lane < warps ? scratch.of_warp[i][lane] : identity, combine);
}

}  // namespace fedasd::cuda
