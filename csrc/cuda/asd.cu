// Host side of the loss on a GPU: chooses kernel, blocks and threads, and launches.
#include "api.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <type_traits>

#include "kernels.cuh"
#include "platform.cuh"
#include "row_parts.cuh"

namespace fedasd::cuda {
namespace {

// One block does a client's batch if it needs no more rounds of short rows than this.  More blocks have to find out
// which is the last, and those of a raw teacher meet at a barrier of the grid, which costs about as much as a round.
constexpr int64_t kRounds = 1, kRawRounds = 2;
constexpr int kThreads = 128;              // where several blocks share a client: more of them, to spread over the GPU
constexpr int64_t kClassesOfAThread = 16;  // of a long row, in a step
constexpr int64_t kClassesOfAPart = 4096;  // of a row that several blocks share, at least
// Weights that a thread reads for itself at most, see run().
constexpr int64_t kCachedRowsOfAThread = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Never 0, which is what wiped memory holds, and never the same twice in 2^32 calls: an odd multiple of a counter with
// a random start, to be unlike what memory is likely to hold.
uint32_t new_stamp() {
  static std::atomic<uint32_t> counter{std::random_device{}()};
  uint32_t stamp = 0;
  while (stamp == 0) stamp = counter.fetch_add(1) * 0x9e3779b1u;
  return stamp;
}

struct Shape {
  int threads;
  int64_t rows;  // in progress at once in a block
};

template <class P>
Shape shape_of(const Kernel<P>& kernel, int64_t classes, int64_t rows, int max_threads) {
  const int64_t wanted = kernel.lanes ? rows * kernel.lanes : ceil_div(classes, kClassesOfAThread);
  const int threads = int(std::min<int64_t>(max_threads, std::max<int64_t>(ceil_div(wanted, 32) * 32, 32)));
  return {threads, kernel.lanes ? threads / kernel.lanes : 1};
}

Rows rows_of(const Problem& p) {
  const Matrix &student = p.student.first, &teacher = p.teacher.first;
  if (student.type != teacher.type || student.col_stride != 1 || teacher.col_stride != 1 || p.options.not_true ||
      p.teacher_rows == TeacherRows::log_probabilities)
    return Rows::any;
  return student.type == DType::f32 ? Rows::f32 : student.type == DType::bf16 ? Rows::bf16 : Rows::any;
}

template <class T>
Kernel<Parameters<T>> kernel_of(const Problem& problem) {
  const bool kl = problem.options.divergence == Divergence::kl;
  switch (problem.teacher_rows) {
    case TeacherRows::none: return cross_entropy_of<T>(problem.classes);
    case TeacherRows::logits: return objective_of<T, false>(problem.classes, kl, rows_of(problem));
    default: return objective_of<T, true>(problem.classes, kl, rows_of(problem));
  }
}

template <class T>
void run(const Problem& problem, const Allocate& allocate, cudaStream_t stream) {
  const bool raw = problem.teacher_rows == TeacherRows::logits,
             cached = !raw && problem.teacher_rows != TeacherRows::none;
  const int64_t clients = problem.clients, batch = problem.batch;
  const auto kernel = kernel_of<T>(problem);
  Parameters<T> p(problem);

  Shape shape = shape_of(kernel, problem.classes, batch, kernel.max_threads);
  bool cooperative = true;
  if (ceil_div(batch, shape.rows) > (!kernel.lanes ? 1 : raw ? kRawRounds : kRounds)) {
    const Shape shared = shape_of(kernel, problem.classes, batch,
                                  std::min(kernel.max_threads, kernel.lanes ? kThreads : kernel.max_threads));
    // All blocks run at once, which the grid barrier needs; and more blocks than that would only repeat the
    // summing of weights.
    const DeviceLimits limits = device_limits(kernel.run, shared.threads);
    const int64_t blocks = std::min(ceil_div(batch, shared.rows), limits.resident_blocks / clients);
    if (blocks > 1) {
      p.blocks_per_client = int(blocks);
      shape = shared;
      cooperative = limits.cooperative;
    }
  }
  // Fewer long rows than the device holds blocks: several blocks share a row, and wait for each other's sums.
  if (!kernel.lanes && batch > 0 && std::is_same_v<T, float>) {
    const DeviceLimits limits = device_limits(kernel.run, shape.threads);
    const int64_t parts = std::min(
        {limits.resident_blocks / (clients * batch), problem.classes / kClassesOfAPart, int64_t(shape.threads)});
    if (parts > 1 && limits.cooperative) {
      p.parts = int(parts);
      p.blocks_per_client = int(batch * parts);
      cooperative = true;
    }
  }

  // A raw teacher's weights are known to the block that has seen the row.  Cached ones every block can read for itself,
  // which costs less than a barrier as long as a thread has a few of them.
  if (p.blocks_per_client > 1) p.publish_sums = raw || (cached && batch > kCachedRowsOfAThread * shape.threads);

  const int64_t partials = p.blocks_per_client > 1 ? clients * p.blocks_per_client : 0,
                rows = raw ? clients * batch : 0, part_words = p.parts > 1 ? partials * kPartWords : 0;
  if (partials + rows > 0) {
    void* const memory = allocate(size_t(partials) * (3 + 2) * sizeof(double) + size_t(part_words) * sizeof(uint64_t) +
                                  size_t(rows) * 3 * sizeof(T));
    p.weight_sums = static_cast<double*>(memory);  // what needs most alignment comes first
    p.partial_loss = reinterpret_cast<uint64_t*>(p.weight_sums + 3 * partials);
    p.stamp = new_stamp();
    p.part_words = p.partial_loss + 2 * partials;
    p.log_weight = reinterpret_cast<T*>(p.part_words + part_words);
    p.teacher_shift = p.log_weight + rows;
    p.teacher_sum = p.teacher_shift + rows;
  }

  const int64_t blocks = clients * p.blocks_per_client;
  const bool grid_barrier = p.publish_sums;
  if (grid_barrier && !cooperative) {
    // No cooperative launch on this device (some virtual GPUs): the end of the first launch is the barrier.
    for (Phases phases : {Phases::weights, Phases::rows}) {
      p.phases = phases;
      launch(kernel.run, blocks, shape.threads, false, stream, p);
    }
    return;
  }
  launch(kernel.run, blocks, shape.threads, grid_barrier || p.parts > 1, stream, p);
}

template <class T>
void build(const CacheProblem& problem, cudaStream_t stream) {
  const auto kernel = build_cache_of<T>(problem.classes);
  const int64_t rows = problem.clients * problem.samples;
  const Shape shape = shape_of(kernel, problem.classes, rows,
                               std::min(kernel.max_threads, kernel.lanes ? kThreads : kernel.max_threads));
  const int64_t resident = device_limits(kernel.run, shape.threads).resident_blocks;
  launch(kernel.run, std::min(ceil_div(rows, shape.rows), resident), shape.threads, false, stream,
         CacheParameters<T>(problem));
}

// Rows and classes are counted in 32 bits (places in memory in 64), so that rows leave more registers free.
void check_size(int64_t size, const char* what) {
  if (size > INT32_MAX / 2)
    throw std::runtime_error("fedasd_fast: " + std::to_string(size) + ' ' + what +
                             "; one call takes at most 1073741823");
}

}  // namespace

void loss_and_gradient(const Problem& problem, const Allocate& allocate, cudaStream_t stream) {
  check_teacher(problem);
  check_size(problem.clients, "clients");
  check_size(problem.batch, "rows of a client");
  check_size(problem.cached, "cached rows of a client");
  check_size(problem.classes, "classes");
  if (problem.clients == 0) return;
  Problem p = problem;
  p.options = effective(p.options, p.classes);
  if (p.options.asd_weight == 0) p.teacher_rows = TeacherRows::none;  // 0 times an infinite divergence would be NaN
  const bool f64 = p.student.first.type == DType::f64 || p.teacher.first.type == DType::f64;
  f64 ? run<double>(p, allocate, stream) : run<float>(p, allocate, stream);
}

void build_cache(const CacheProblem& problem, cudaStream_t stream) {
  check_size(problem.samples, "rows of a client");
  check_size(problem.classes, "classes");
  if (problem.clients * problem.samples == 0) return;
  CacheProblem p = problem;
  p.options = effective(p.options, p.classes);
  const bool f64 = p.teacher.first.type == DType::f64 || p.rows.type == DType::f64;
  f64 ? build<double>(p, stream) : build<float>(p, stream);
}

}  // namespace fedasd::cuda
