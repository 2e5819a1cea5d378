// Adds the blocks' partial losses up to a client's loss, within the same launch.
//
// The block that ends last adds them up, in their order.  Every block publishes its partial loss, then looks at those
// of all blocks of the client; if one is missing, another block will come after it and see more.
//
// A partial loss is published as two words of 64 bits: half of its bits each, beside the stamp of this call.  So
// whoever sees both stamps has the loss as well, without any order between the two.  A stamp is a number that this
// process has not used before, so the memory needs no initialisation (which would be a launch of its own); and because
// the words are wiped in the end, a CUDA graph can replay the launch with the same number.
#pragma once

#include "kernels.cuh"
#include "reduce.cuh"
#include "row_parts.cuh"

namespace fedasd::cuda {

struct LossSumShared {
  BlockScratch<double, 1> sum;
};

__device__ __forceinline__ unsigned long long bits_of(double x) {
  return static_cast<unsigned long long>(__double_as_longlong(x));
}

// `loss` is this thread's part of the client's loss.
template <class T>
__device__ __forceinline__ void sum_losses(const Parameters<T>& p, int64_t client, double loss, LossSumShared& shared) {
  double sum[1] = {loss};
  block_reduce(sum, shared.sum, 0.0, Add{});
  const int blocks = p.blocks_per_client, lane = int(threadIdx.x);
  if (blocks == 1) {
    if (lane == 0) p.problem.loss.set(client, sum[0]);
    return;
  }
  if (lane >= kWarp) return;  // the first warp does the rest
  uint64_t* const published = p.partial_loss + client * blocks * 2;
  if (lane == 0) {
    uint64_t* const own = p.partial_loss + int64_t(blockIdx.x) * 2;
    const uint64_t bits = bits_of(sum[0]);
    store_relaxed(own, bits << 32 | p.stamp);
    store_relaxed(own + 1, (bits >> 32) << 32 | p.stamp);
    // Hazard: of two blocks that publish at the same time, both might look before the other's words are visible, and
    // no block would see all of them.  Of two such fences (sequentially consistent) one comes first, and the block of
    // the later one sees what the other has published.
    __threadfence();
  }
  // Hazard: the other lanes look as well; they must do so after the fence.
  __syncwarp();
  sum[0] = 0;
  bool all = true;
#pragma unroll 4
  for (int i = lane; i < blocks; i += kWarp) {
    const uint64_t low = load_relaxed(published + 2 * i), high = load_relaxed(published + 2 * i + 1);
    sum[0] += __longlong_as_double(static_cast<long long>((high >> 32) << 32 | low >> 32));
    all = all && uint32_t(low) == p.stamp && uint32_t(high) == p.stamp;
  }
  if (!__all_sync(~0u, all)) return;
  // Several blocks may see all.  They add the same numbers in the same order and write the same loss, by an atomic so
  // that it is no race; and one that finds words wiped already leaves to the block that wiped them.
  sum[0] = group_reduce<kWarp>(~0u, sum[0], Add{});
  for (int i = lane; i < 2 * blocks; i += kWarp) store_relaxed(published + i, 0);
  if (p.parts > 1)
    for (int i = lane; i < blocks * kPartWords; i += kWarp)
      store_relaxed(p.part_words + client * blocks * kPartWords + i, 0);
  if (lane > 0) return;
  if (p.problem.loss.wide) atomicExch(static_cast<unsigned long long*>(p.problem.loss.data) + client, bits_of(sum[0]));
  else atomicExch(static_cast<float*>(p.problem.loss.data) + client, float(sum[0]));
}

}  // namespace fedasd::cuda
