// The blocks that share a long row: each has a part of its classes, and all of them the row's sums.
//
// A block publishes a number of its part as a word of 64 bits: the number's bits beside the stamp of this call (see
// loss_sum.cuh).  A thread of every block waits for each part's word; whoever sees the stamp has the number as well,
// because a word is never torn.  So there is no barrier and no fence, but all blocks of a row must be running, which a
// cooperative launch guarantees.  Numbers are reduced in the order of the parts: every block gets the same bits.
//
// Each word is written once in a launch, and wiped by the block that sums the losses: it comes after all that wait
// here.
#pragma once

#include "kernels.cuh"
#include "platform.cuh"

namespace fedasd::cuda {

// Words of a part: two softmaxes of four numbers, and two sums over classes.
constexpr int kPartWords = 2 * 4 + 2;

struct RowParts {
  int count = 1, index = 0;
  uint64_t* words = nullptr;  // of the row: kPartWords for each part
  uint32_t stamp = 0;

  // Publishes x, and gives thread i the numbers of part i; true for threads that got some.
  template <int n>
  __device__ __forceinline__ bool collect(float (&x)[n]) {
    uint64_t* const all = words;
    words += n * count;
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < n; ++i) store_relaxed(all + index * n + i, uint64_t(__float_as_uint(x[i])) << 32 | stamp);
    }
    if (int(threadIdx.x) >= count) return false;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      uint64_t word;
      do word = load_relaxed(all + int(threadIdx.x) * n + i);
      while (uint32_t(word) != stamp);
      x[i] = __uint_as_float(uint32_t(word >> 32));
    }
    return true;
  }
};

// Which rows of its client a block has: `first`, and every `step` rows one for each of its teams.
struct RowsOfBlock {
  int client, block;  // the block's number among the client's
  int first, step;
  RowParts parts;

  template <class T>
  __device__ __forceinline__ explicit RowsOfBlock(const Parameters<T>& p)
      : client(int(blockIdx.x) / p.blocks_per_client), block(int(blockIdx.x) - client * p.blocks_per_client),
        first(block / p.parts), step(p.blocks_per_client / p.parts) {
    parts.count = p.parts;
    parts.index = block % p.parts;
    parts.stamp = p.stamp;
    if (p.parts > 1) parts.words = p.part_words + (client * p.problem.batch + first) * p.parts * kPartWords;
  }
};

}  // namespace fedasd::cuda
