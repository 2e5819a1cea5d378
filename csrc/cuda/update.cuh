// Kernels of the client update: for each client a norm, then a pass over its elements.
//
// A client's elements are cut into chunks whose length depends on nothing but their number.  The squares of a chunk
// give one sum, and the norm is the sum of those, in the same order everywhere: its bits depend neither on the number
// of blocks, nor on alignment, nor on the other clients of the call.  Every block takes a range of all clients' chunks.
#pragma once

#include <cstring>

#include "../update/formulas.h"
#include "../update/problem.h"
#include "reduce.cuh"

namespace fedasd::cuda {

constexpr int kUpdateThreads = 256;

// 16 bytes of a row.
template <class T>
struct Piece {
  static constexpr int kElements = 16 / int(sizeof(T));
  T at[kElements];
};

__device__ __forceinline__ bool is_wide(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// From element i on; 0 beyond the end.  `wide`: the row is aligned.  `constant`: no kernel of this launch writes to it.
template <bool constant, class T>
__device__ __forceinline__ Piece<T> read_piece(const T* row, int64_t i, int64_t size, bool wide) {
  constexpr int n = Piece<T>::kElements;
  Piece<T> piece;
  if (wide && i + n <= size) {
    const uint4* from = reinterpret_cast<const uint4*>(row + i);
    const uint4 word = constant ? __ldg(from) : __ldca(from);
    memcpy(&piece, &word, sizeof word);
  } else {
#pragma unroll
    for (int j = 0; j < n; ++j) piece.at[j] = i + j < size ? row[i + j] : T(0);
  }
  return piece;
}
template <class T>
__device__ __forceinline__ void write_piece(T* row, const Piece<T>& piece, int64_t i, int64_t size, bool wide) {
  constexpr int n = Piece<T>::kElements;
  if (wide && i + n <= size) {
    uint4 word;
    memcpy(&word, &piece, sizeof word);
    __stwb(reinterpret_cast<uint4*>(row + i), word);
  } else {
#pragma unroll
    for (int j = 0; j < n; ++j)
      if (i + j < size) row[i + j] = piece.at[j];
  }
}

// One client of a LocalStep.
template <class T_>
struct StepRow {
  using T = T_;
  using Problem = LocalStep;
  static constexpr int n = Piece<T>::kElements;
  T *w, *velocity;
  const T *g, *linear;
  int64_t size;
  T quadratic, factor, decay, momentum, lr;
  bool finished, wide;

  static bool needs_norm(const LocalStep& p) { return p.needs_norm(); }

  __device__ __forceinline__ StepRow(const LocalStep& p, int64_t k)
      : w(static_cast<T*>(p.w.client(k, p.type))),
        velocity(p.velocity.data ? static_cast<T*>(p.velocity.client(k, p.type)) : nullptr),
        g(static_cast<const T*>(p.g.client(k, p.type))),
        linear(p.linear.data ? static_cast<const T*>(p.linear.client(k, p.type)) : nullptr), size(p.size),
        quadratic(T(p.quadratic)), factor(1), decay(T(p.decay.at(k))), momentum(T(p.momentum)) {
    const double rate = p.lr.at(k);
    const bool lr_is_finite_and_not_negative = rate >= 0 && rate - rate == 0;
    FEDASD_DEVICE_ASSERT(lr_is_finite_and_not_negative);
    lr = T(rate);
    finished = rate == 0;
    wide = is_wide(w) && is_wide(velocity) && is_wide(g) && is_wide(linear);
  }

  __device__ __forceinline__ void set_norm(const LocalStep& p, double norm) {
    if (p.clip != 0) factor = T(clip_factor(norm, p.clip));
  }
  static __device__ __forceinline__ void report(const LocalStep& p, int64_t k, double norm) {
    if (p.norms) p.norms[k] = norm;
  }

  // g + quadratic w + linear.
  __device__ __forceinline__ Piece<T> corrected(const Piece<T>& at, int64_t i) const {
    Piece<T> u = read_piece<true>(g, i, size, wide);
#pragma unroll
    for (int j = 0; j < n; ++j) u.at[j] = with_quadratic(u.at[j], at.at[j], quadratic);
    if (linear) {
      const Piece<T> v = read_piece<true>(linear, i, size, wide);
#pragma unroll
      for (int j = 0; j < n; ++j) u.at[j] += v.at[j];
    }
    return u;
  }
  __device__ __forceinline__ double squares(int64_t i) const {
    Piece<T> at = {};
    if (quadratic != 0) at = read_piece<false>(w, i, size, wide);  // else not a byte of w is needed for the norm
    const Piece<T> u = corrected(at, i);
    double sum = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) sum += double(u.at[j]) * double(u.at[j]);
    return sum;
  }
  __device__ __forceinline__ void apply(int64_t i) const {
    Piece<T> at = read_piece<false>(w, i, size, wide), d = corrected(at, i);
#pragma unroll
    for (int j = 0; j < n; ++j) d.at[j] = direction(d.at[j], at.at[j], factor, decay);
    if (velocity) {
      const Piece<T> before = read_piece<false>(velocity, i, size, wide);
#pragma unroll
      for (int j = 0; j < n; ++j) d.at[j] = with_momentum(before.at[j], d.at[j], momentum);
      write_piece(velocity, d, i, size, wide);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) at.at[j] = moved(at.at[j], d.at[j], -lr);
    write_piece(w, at, i, size, wide);
  }
};

// One client of an Ascent.
template <class T_>
struct AscentRow {
  using T = T_;
  using Problem = Ascent;
  static constexpr int n = Piece<T>::kElements;
  T *w, *saved;
  const T* g;
  int64_t size;
  T factor;
  bool wide;
  static constexpr bool finished = false;

  static bool needs_norm(const Ascent&) { return true; }

  __device__ __forceinline__ AscentRow(const Ascent& p, int64_t k)
      : w(static_cast<T*>(p.w.client(k, p.type))), saved(static_cast<T*>(p.saved.client(k, p.type))),
        g(static_cast<const T*>(p.g.client(k, p.type))), size(p.size), factor(0),
        wide(is_wide(w) && is_wide(saved) && is_wide(g)) {}

  __device__ __forceinline__ void set_norm(const Ascent& p, double norm) {
    factor = T(ascent_factor(norm, p.rho, p.epsilon));
  }
  static __device__ __forceinline__ void report(const Ascent&, int64_t, double) {}

  __device__ __forceinline__ double squares(int64_t i) const {
    const Piece<T> u = read_piece<true>(g, i, size, wide);
    double sum = 0;
#pragma unroll
    for (int j = 0; j < n; ++j) sum += double(u.at[j]) * double(u.at[j]);
    return sum;
  }
  __device__ __forceinline__ void apply(int64_t i) const {
    Piece<T> at = read_piece<false>(w, i, size, wide);
    write_piece(saved, at, i, size, wide);
    const Piece<T> u = read_piece<true>(g, i, size, wide);
#pragma unroll
    for (int j = 0; j < n; ++j) at.at[j] = moved(at.at[j], u.at[j], factor);
    write_piece(w, at, i, size, wide);
  }
};

// Which half a launch runs.  `both` needs every block that shares a client to be running at once.
enum class Passes { both, norms, apply };

template <class Problem>
struct UpdateParameters {
  Problem problem;
  int64_t chunk;  // elements of a chunk, a multiple of what a block moves at once
  int chunks;     // of a client; those of all clients are counted in 32 bits
  Passes passes = Passes::both;
  bool with_norm = false, grid_barrier = false;
  double* sums = nullptr;  // [clients, chunks]
};

template <class Row>
__global__ void __launch_bounds__(kUpdateThreads) update_kernel(const UpdateParameters<typename Row::Problem> p) {
  using Scratch = BlockScratch<double, 1>;
  FEDASD_SHARED(Scratch, scratch);
  const auto& problem = p.problem;
  // This block's range: as many chunks as any other's, or one more.
  const int all = int(problem.clients) * p.chunks, block = int(blockIdx.x), blocks = int(gridDim.x);
  const int each = all / blocks, more = all % blocks;
  const int begin = block * each + min(block, more), end = begin + each + (block < more);
  // This thread's pieces of a chunk: the first one, and where they end.
  constexpr int64_t step = kUpdateThreads * Row::n;
  auto first_of = [&](int chunk) { return chunk * p.chunk + int(threadIdx.x) * Row::n; };
  auto end_of = [&](int chunk) { return (chunk + 1) * p.chunk < problem.size ? (chunk + 1) * p.chunk : problem.size; };

  if (p.with_norm) {
    if (p.passes != Passes::apply) {
      for (int task = begin; task < end; ++task) {
        const Row row(problem, task / p.chunks);
        if (row.finished) continue;
        double sum[1] = {0};
        const int64_t last = end_of(task % p.chunks);
#pragma unroll 2
        for (int64_t i = first_of(task % p.chunks); i < last; i += step) sum[0] += row.squares(i);
        block_reduce(sum, scratch, 0.0, Add{});
        if (threadIdx.x == 0) p.sums[task] = sum[0];
      }
      if (p.passes == Passes::norms) return;
      // Hazard: the norm needs the sums of all chunks of the client, which thread 0 of this block wrote, or of others.
      if (p.grid_barrier) cooperative_groups::this_grid().sync();
      else __syncthreads();
    }
  }

  // Backwards: what the first pass read last is the likeliest to be in the caches.
  int known = -1;
  double norm = 0;
  for (int task = end - 1; task >= begin; --task) {
    const int client = task / p.chunks, chunk = task % p.chunks;
    Row row(problem, client);
    if (p.with_norm && client != known && !row.finished) {
      double sum[1] = {0};
      for (int c = int(threadIdx.x); c < p.chunks; c += kUpdateThreads) sum[0] += p.sums[client * p.chunks + c];
      block_reduce(sum, scratch, 0.0, Add{});
      norm = sqrt(sum[0]);
      known = client;
    }
    if (threadIdx.x == 0 && chunk == 0) Row::report(problem, client, row.finished ? 0 : norm);
    if (row.finished) continue;
    if (p.with_norm) row.set_norm(problem, norm);
    const int64_t last = end_of(chunk);
#pragma unroll 1  // what memory needs to be busy are other warps, and those need the registers
    for (int64_t i = first_of(chunk); i < last; i += step) row.apply(i);
  }
}

constexpr int kClientsOfALaunch = 256;

struct AccumulateParameters {
  Accumulation problem;              // its scales are the host's: these are the launch's own
  double scales[kClientsOfALaunch];  // by value, so that nothing has to be copied to the device first
};

// total += sum of round(w scale): all clients of an element in one thread, and integers, so in any order.
template <class T>
__global__ void __launch_bounds__(kUpdateThreads) accumulate_kernel(const AccumulateParameters p) {
  using Count = long long;
  constexpr int n = Piece<T>::kElements, m = Piece<Count>::kElements;
  const Accumulation& a = p.problem;
  Count* total = reinterpret_cast<Count*>(a.total);
  const bool wide_total = is_wide(total);
  const int64_t step = int64_t(gridDim.x) * kUpdateThreads * n;
  for (int64_t i = (int64_t(blockIdx.x) * kUpdateThreads + int(threadIdx.x)) * n; i < a.size; i += step) {
    Piece<Count> sum[n / m];
#pragma unroll
    for (int j = 0; j < n / m; ++j) sum[j] = read_piece<false>(total, i + j * m, a.size, wide_total);
    for (int k = 0; k < int(a.clients); ++k) {
      const T* w = static_cast<const T*>(a.w.client(k, a.type));
      const Piece<T> x = read_piece<true>(w, i, a.size, is_wide(w));
#pragma unroll
      for (int j = 0; j < n; ++j) {
        // Unsigned, because the reference wraps around as well.
        unsigned long long term = static_cast<unsigned long long>(__double2ll_rn(double(x.at[j]) * p.scales[k]));
        Count& to = sum[j / m].at[j % m];
        to = static_cast<Count>(static_cast<unsigned long long>(to) + term);
      }
    }
#pragma unroll
    for (int j = 0; j < n / m; ++j) write_piece(total, sum[j], i + j * m, a.size, wide_total);
  }
}

}  // namespace fedasd::cuda
