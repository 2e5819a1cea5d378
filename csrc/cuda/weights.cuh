// alpha: every block sums the weights of all its client's rows for itself, in the same order, instead of
// waiting for another block to do it.
#pragma once

#include "labels.cuh"
#include "reduce.cuh"

namespace fedasd::cuda {

// Cached log weights are double and are subtracted as such; a raw teacher's were computed in T.
template <class T, bool cached>
using LogWeight = std::conditional_t<cached, double, T>;

template <class T, bool cached>
__device__ __forceinline__ LogWeight<T, cached> read_log_weight(const Parameters<T>& p, int64_t client, int row, const BatchRow& r) {
  if (!p.problem.options.adaptive) return 0;
  if constexpr (cached) return p.problem.cache_log_weight.at(client, r.teacher_row);
  else return p.log_weight[client * p.problem.batch + row];
}

template <class T, bool cached>
struct Weights {
  using L = LogWeight<T, cached>;
  struct Shared;
  L top;
  T inverse_sum, valid;

  __device__ __forceinline__ T alpha(L log_weight) const { return exp_of(log_weight - top) * inverse_sum; }

  // Every thread of the block calls it.  The result lies in shared memory, to leave more registers for rows.
  static __device__ __forceinline__ const Weights& of_client(const Parameters<T>& p, int64_t client, Shared& shared) {
    // One pass: every thread keeps its sum over its own running maximum.  exp(-inf) = 0 does the right thing for
    // the first row, and for threads without any.
    L own = -kInfinity<L>;
    T sums[2] = {0, 0};
    for (int row = int(threadIdx.x); row < int(p.problem.batch); row += int(blockDim.x)) {
      const BatchRow r = read_row<cached>(p.problem, client, row);
      if (r.label < 0) continue;
      const L w = read_log_weight<T, cached>(p, client, row, r);
      if (w > own) {
        sums[0] *= exp_of(own - w);
        own = w;
      }
      sums[0] += exp_of(w - own);
      sums[1] += 1;  // exact up to 2^24 rows
    }
    L top[1] = {own};
    block_reduce(top, shared.top, -kInfinity<L>, Larger{});
    if (top[0] == -kInfinity<L>) top[0] = 0;  // no valid row
    sums[0] *= exp_of(own - top[0]);
    block_reduce(sums, shared.sums, T(0), Add{});
    if (threadIdx.x == 0) {
      shared.result.top = top[0];
      shared.result.inverse_sum = 1 / sums[0];
      shared.result.valid = sums[1];
    }
    // Hazard (read after write): the other threads read what thread 0 has written.
    __syncthreads();
    return shared.result;
  }

 private:
  static __device__ __forceinline__ T exp_of(L x) { return exp_2(T(x) * T(kLog2E)); }
};

template <class T, bool cached>
struct Weights<T, cached>::Shared {
  BlockRoom<L, 1> top;
  BlockRoom<T, 2> sums;
  Weights result;
};

}  // namespace fedasd::cuda
