// Host side of the client update on a GPU: cuts the clients' elements into chunks, and launches.
#include "api.h"

#include <algorithm>
#include <cstdint>

#include "platform.cuh"
#include "update.cuh"

namespace fedasd::cuda {
namespace {

// Four times what a block of float moves at once: long enough to pay for the sum over the block, short enough to spread
// over a GPU.  Every block adds up all chunks of its client, so there are never more than kChunks of them.
constexpr int64_t kChunk = 4096, kChunks = 4096;
// A client of no more chunks than this is one block's: bringing blocks together costs about as much.
constexpr int64_t kChunksOfOneBlock = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Chunks of all clients are counted in 32 bits; elements and places in memory in 64.
void check_count(int64_t count, const char* what) {
  if (count > INT32_MAX / 2)
    throw std::runtime_error("fedasd_fast: " + std::to_string(count) + ' ' + what +
                             "; one call takes at most 1073741823");
}

template <class Row>
void run(const typename Row::Problem& problem, const Allocate& allocate, cudaStream_t stream) {
  if (problem.clients == 0) return;
  UpdateParameters<typename Row::Problem> p;
  p.problem = problem;
  p.chunk = kChunk * std::max<int64_t>(1, ceil_div(problem.size, kChunk * kChunks));
  p.chunks = int(std::max<int64_t>(1, ceil_div(problem.size, p.chunk)));
  p.with_norm = Row::needs_norm(problem);
  const auto kernel = update_kernel<Row>;
  const int64_t chunks = problem.clients * p.chunks;
  check_count(chunks, "pieces of work");
  const DeviceLimits limits = device_limits(kernel, kUpdateThreads);
  int64_t blocks = std::min(chunks, limits.resident_blocks);
  if (p.with_norm) {
    p.sums = static_cast<double*>(allocate(size_t(chunks) * sizeof(double)));
    if (p.chunks <= kChunksOfOneBlock || problem.clients >= limits.resident_blocks) {
      blocks = problem.clients;
    } else if (limits.cooperative) {
      p.grid_barrier = true;
    } else {
      // No cooperative launch on this device (some virtual GPUs): the end of the first launch is the barrier.
      p.passes = Passes::norms;
      launch(kernel, blocks, kUpdateThreads, false, stream, p);
      p.passes = Passes::apply;
    }
  }
  launch(kernel, blocks, kUpdateThreads, p.grid_barrier, stream, p);
}

template <class T>
void run(const Accumulation& problem, cudaStream_t stream) {
  const auto kernel = accumulate_kernel<T>;
  const int64_t at_once = kUpdateThreads * Piece<T>::kElements;
  const int64_t blocks =
      std::min(ceil_div(problem.size, at_once), device_limits(kernel, kUpdateThreads).resident_blocks);
  for (int64_t first = 0; first < problem.clients; first += kClientsOfALaunch) {
    AccumulateParameters p;
    p.problem = problem;
    p.problem.clients = std::min<int64_t>(kClientsOfALaunch, problem.clients - first);
    p.problem.w.data = problem.w.client(first, problem.type);
    p.problem.scales = nullptr;
    std::copy_n(problem.scales + first, p.problem.clients, p.scales);
    std::fill(p.scales + p.problem.clients, p.scales + kClientsOfALaunch, 0.0);
    launch(kernel, blocks, kUpdateThreads, false, stream, p);
  }
}

}  // namespace

void local_step(const LocalStep& p, const Allocate& allocate, cudaStream_t stream) {
  p.type == DType::f64 ? run<StepRow<double>>(p, allocate, stream) : run<StepRow<float>>(p, allocate, stream);
}
void ascend(const Ascent& p, const Allocate& allocate, cudaStream_t stream) {
  p.type == DType::f64 ? run<AscentRow<double>>(p, allocate, stream) : run<AscentRow<float>>(p, allocate, stream);
}
void accumulate(const Accumulation& p, cudaStream_t stream) {
  if (p.size == 0) return;
  p.type == DType::f64 ? run<double>(p, stream) : run<float>(p, stream);
}

}  // namespace fedasd::cuda
