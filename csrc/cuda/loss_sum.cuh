// Adds the blocks' partial losses up to a client's loss, within the same launch.
//
// The block that ends last adds the partial losses up, in their order.  Which one that is, the blocks find out by
// stamps: each writes its partial loss, then its stamp, then looks at all stamps of the client.  The value of the
// stamp is a random 64-bit number of this call, so the memory needs no initialisation (which would be a
// launch of its own); and because the stamps are wiped in the end, a CUDA graph can replay the launch with
// the same number.
#pragma once

#include "kernels.cuh"
#include "reduce.cuh"

namespace fedasd::cuda {

struct LossSumShared {
  BlockScratch<double, 1> sum;
  BlockScratch<int, 1> missing;
};

// `loss` is this thread's part of the client's loss.
template <class T>
__device__ __forceinline__ void sum_losses(const Parameters<T>& p, int64_t client, double loss, LossSumShared& shared) {
  double sum[1] = {loss};
  block_reduce(sum, shared.sum, 0.0, Add{});
  const int blocks = p.blocks_per_client;
  if (blocks == 1) {
    if (threadIdx.x == 0) p.problem.loss.set(client, sum[0]);
    return;
  }
  double* partial = p.partial_loss + client * blocks;
  unsigned long long* stamp = p.stamp + client * blocks;
  if (threadIdx.x == 0) {
    const int own = int(blockIdx.x) % blocks;
    __stcg(partial + own, sum[0]);
    // Hazard: a block that sees the stamp must see the partial loss as well.
    __threadfence();
    atomicExch(stamp + own, p.stamp_value);
    // Hazard: of two blocks that stamp at the same time, both might look before the other's stamp is
    // visible, and no block would be the last; this fence (sequentially consistent) rules that out.
    __threadfence();
  }
  // Hazard: the other threads look at the stamps; they must do so after thread 0 has stamped.
  __syncthreads();
  int missing[1] = {0};
  for (int i = int(threadIdx.x); i < blocks; i += int(blockDim.x))
    missing[0] |= atomicAdd(stamp + i, 0ull) != p.stamp_value;
  block_reduce(missing, shared.missing, 0, Larger{});
  if (missing[0]) return;  // the whole block: `missing` is the same for every thread
  // Two blocks may both see all stamps.  The first to wipe stamp 0 does the sum; the other leaves.
  if (threadIdx.x == 0) missing[0] = atomicCAS(stamp, p.stamp_value, ~p.stamp_value) != p.stamp_value;
  block_reduce(missing, shared.missing, 0, Larger{});
  if (missing[0]) return;
  // Hazard: the partial losses must not be read ahead of the stamps.
  __threadfence();
  sum[0] = 0;
  for (int i = int(threadIdx.x); i < blocks; i += int(blockDim.x)) {
    sum[0] += __ldcg(partial + i);
    atomicExch(stamp + i, ~p.stamp_value);
  }
  block_reduce(sum, shared.sum, 0.0, Add{});
  if (threadIdx.x == 0) p.problem.loss.set(client, sum[0]);
}

}  // namespace fedasd::cuda
