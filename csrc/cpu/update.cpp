// The client update on the CPU: norms in a fixed order, and elements on the caller's threads.
#include "update.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "../update/formulas.h"
#include "batch.h"

namespace fedasd::cpu {
namespace {

// A sum of squares is one number for each block, added in the order of the blocks: the bits do not depend on threads.
constexpr int64_t kBlock = 1 << 12;
// About 20 microseconds of work: below that, waking a thread costs more than it saves.
constexpr int64_t kGrain = 1 << 16;

int64_t blocks_of(int64_t size) { return (size + kBlock - 1) / kBlock; }

bool worth_threads(const Parallel* parallel, int64_t elements) {
  return parallel && parallel->threads > 1 && elements >= 2 * kGrain;
}

// f(begin, end) over the blocks of one client, on the calling thread or split over all.
template <class F>
void over_blocks(const Parallel* parallel, int64_t size, F f) {
  const int64_t blocks = blocks_of(size);
  if (worth_threads(parallel, size)) parallel->run(blocks, kGrain / kBlock, f);
  else f(0, blocks);
}

// f(client, parallel): clients at once while there is one for every thread, so that a client's second pass finds in the
// caches what its first one read; the clients left over one after another, with all threads for each.
template <class F>
void over_clients(const Parallel& parallel, int64_t clients, int64_t size, F f) {
  const int64_t at_once = worth_threads(&parallel, clients * size) ? clients / parallel.threads * parallel.threads : 0;
  if (at_once)
    parallel.run(at_once, std::max<int64_t>(1, kGrain / std::max<int64_t>(size, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) f(k, nullptr);
    });
  for (int64_t k = at_once; k < clients; ++k) f(k, &parallel);
}

// Forwards, like the first pass.  Backwards would find more in the caches, but the prefetcher would start anew at each
// block, which costs as much.
template <class F>
void over_elements(const Parallel* parallel, int64_t size, F f) {
  over_blocks(parallel, size, [&](int64_t begin, int64_t end) { f(begin * kBlock, std::min(size, end * kBlock)); });
}

}  // namespace

double norm(const UpdateKernels& run, const ClientUpdate& c, int64_t size, const Parallel* parallel) {
  auto block = [&](int64_t b) { return run.squares(c, b * kBlock, std::min(size, (b + 1) * kBlock)); };
  double sum = 0;
  if (!worth_threads(parallel, size)) {
    for (int64_t b = 0; b < blocks_of(size); ++b) sum += block(b);
    return std::sqrt(sum);
  }
  std::vector<double> sums(size_t(blocks_of(size)));
  over_blocks(parallel, size, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) sums[size_t(b)] = block(b);
  });
  for (double s : sums) sum += s;
  return std::sqrt(sum);
}

void local_step(const LocalStep& p, const Parallel& parallel) {
  const UpdateKernels& run = kernels().update;
  over_clients(parallel, p.clients, p.size, [&](int64_t k, const Parallel* all) {
    ClientUpdate c;
    c.lr = p.lr.at(k);
    if (p.norms) p.norms[k] = 0;
    if (c.lr == 0) return;
    c.type = p.type;
    c.w = p.w.client(k, p.type);
    c.g = p.g.client(k, p.type);
    if (p.velocity.data) c.velocity = p.velocity.client(k, p.type);
    if (p.linear.data) c.linear = p.linear.client(k, p.type);
    c.quadratic = p.quadratic;
    c.decay = p.decay.at(k);
    c.momentum = p.momentum;
    if (p.needs_norm()) {
      const double length = norm(run, c, p.size, all);
      if (p.norms) p.norms[k] = length;
      if (p.clip != 0) c.factor = clip_factor(length, p.clip);
    }
    over_elements(all, p.size, [&](int64_t begin, int64_t end) { run.step(c, begin, end); });
  });
}

void ascend(const Ascent& p, const Parallel& parallel) {
  const UpdateKernels& run = kernels().update;
  over_clients(parallel, p.clients, p.size, [&](int64_t k, const Parallel* all) {
    ClientUpdate c;
    c.type = p.type;
    c.w = p.w.client(k, p.type);
    c.g = p.g.client(k, p.type);
    c.saved = p.saved.client(k, p.type);
    c.factor = ascent_factor(norm(run, c, p.size, all), p.rho, p.epsilon);
    over_elements(all, p.size, [&](int64_t begin, int64_t end) { run.ascend(c, begin, end); });
  });
}

void accumulate(const Accumulation& p, const Parallel& parallel) {
  const UpdateKernels& run = kernels().update;
  auto range = [&](int64_t begin, int64_t end) { run.accumulate(p, begin, end); };
  // All clients of an element on one thread: sums of integers are the same in any order.
  if (worth_threads(&parallel, p.clients * p.size))
    parallel.run(p.size, std::max<int64_t>(1, kGrain / std::max<int64_t>(p.clients, 1)), range);
  else range(0, p.size);
}

}  // namespace fedasd::cpu
