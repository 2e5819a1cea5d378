// alpha: the weights of a client's rows, normalised by their sum.
//
// Rows are summed over their maximum, first by threads, then by blocks, always in the same order.  A block either sums
// all rows of its client for itself, or only some of them and publishes the sum; after a barrier of the grid every
// block then adds up the published ones.
#pragma once

#include <type_traits>

#include "batch.cuh"
#include "kernels.cuh"
#include "reduce.cuh"

namespace fedasd::cuda {

// Cached log weights are double and are subtracted as such; a raw teacher's were computed in T.
template <class T, bool cached>
using LogWeight = std::conditional_t<cached, double, T>;

template <class T, bool cached>
struct WeightSum {
  using L = LogWeight<T, cached>;
  // exp(-inf) = 0 does the right thing for the first row, and for threads without any.
  L top = -kInfinity<L>;
  T sum = 0, valid = 0;  // sum exp(w - top); the count is exact up to 2^24 rows

  static __device__ __forceinline__ T exp_of(L x) { return exp_2(T(x) * T(kLog2E)); }

  __device__ __forceinline__ void add(L other_top, T other_sum, T count) {
    if (other_top > top) {
      sum *= exp_of(top - other_top);
      top = other_top;
    }
    sum += other_sum * exp_of(other_top - top);
    valid += count;
  }
  __device__ __forceinline__ void add(L log_weight) { add(log_weight, 1, 1); }
};

// Adds the weights of rows `row`, `row + step` and so on.  The loads of several rows are in flight together.
template <class T>
__device__ __forceinline__ void add_cached_weights(WeightSum<T, true>& sum, const Problem& p, int64_t client, int row,
                                                   int step) {
  constexpr int kRows = 4;
#pragma unroll 1
  for (; row < int(p.batch); row += kRows * step) {
    BatchEntry entry[kRows];
    bool valid[kRows];
    double log_weight[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      entry[i] = row + i * step < int(p.batch) ? fetch_entry<true>(p, client, row + i * step)
                                               : BatchEntry{p.options.ignore_index, 0};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const BatchRow at = checked_row<true>(p, entry[i]);
      valid[i] = at.label >= 0;
      log_weight[i] = valid[i] && p.options.adaptive ? p.cache_log_weight.at(client, at.teacher_row) : 0;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (valid[i]) sum.add(log_weight[i]);
  }
}

template <class T, bool cached>
struct Weights {
  using Sum = WeightSum<T, cached>;
  using L = typename Sum::L;
  struct Shared;
  L top;
  T inverse_sum, valid;

  __device__ __forceinline__ T alpha(L log_weight) const { return Sum::exp_of(log_weight - top) * inverse_sum; }

  // Over the block; every thread calls it and gets the result.
  static __device__ __forceinline__ Sum of_block(const Sum& own, Shared& shared) {
    L top[1] = {own.top};
    block_reduce(top, shared.top, -kInfinity<L>, Larger{});
    if (top[0] == -kInfinity<L>) top[0] = 0;  // no valid row
    T sums[2] = {own.sum * Sum::exp_of(own.top - top[0]), own.valid};
    block_reduce(sums, shared.sums, T(0), Add{});
    Sum all;
    all.top = top[0], all.sum = sums[0], all.valid = sums[1];
    return all;
  }

  // Published sums: [clients, blocks of a client] of three numbers.
  static __device__ __forceinline__ void publish(const Parameters<T>& p, const Sum& of_block) {
    double* const to = p.weight_sums + int64_t(blockIdx.x) * 3;
    if (threadIdx.x == 0) to[0] = of_block.top, to[1] = of_block.sum, to[2] = of_block.valid;
  }
  static __device__ __forceinline__ Sum of_published(const Parameters<T>& p, int64_t client, Shared& shared) {
    Sum own;
    for (int i = int(threadIdx.x); i < p.blocks_per_client; i += int(blockDim.x)) {
      const double* from = p.weight_sums + (client * p.blocks_per_client + i) * 3;
      if (from[2] > 0) own.add(L(from[0]), T(from[1]), T(from[2]));  // the top of no rows is no top
    }
    return of_block(own, shared);
  }

  // The sum of the client's weights is known here and nowhere else.  The result lies in shared memory, to leave more
  // registers for rows; every thread of the block calls it.
  static __device__ __forceinline__ const Weights& normalised(const Problem& p, int64_t client, const Sum& of_client,
                                                              Shared& shared) {
    if (threadIdx.x == 0) {
      const Numbers& given = p.alpha_normalizer;  // then alpha does not depend on the batch's own sum
      shared.result.top = given.data ? read_log_normalizer<L>(given, client) : of_client.top;
      shared.result.inverse_sum = 1 / (given.data ? of_client.valid : of_client.sum);
      shared.result.valid = of_client.valid;
    }
    // Hazard (read after write): the other threads read what thread 0 has written.
    __syncthreads();
    return shared.result;
  }
};

template <class T, bool cached>
struct Weights<T, cached>::Shared {
  BlockScratch<L, 1> top;
  BlockScratch<T, 2> sums;
  Weights result;
};

}  // namespace fedasd::cuda
