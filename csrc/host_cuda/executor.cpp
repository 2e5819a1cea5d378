// Runs the threads of a launch: scheduling, barriers, shuffles.
#include "executor.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>

#include "state.h"

namespace host_cuda {

State state;

uint64_t random_bits() {  // splitmix64
  uint64_t x = state.random += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

namespace {

constexpr uint64_t kIdle = 20'000'000;

// Kept between launches.
std::vector<std::unique_ptr<Thread>> all_threads;
std::vector<Thread*> free_threads;
std::vector<std::unique_ptr<Block>> free_blocks;
std::unique_ptr<Fiber> main_fiber;

size_t random_below(size_t n) { return size_t((random_bits() >> 32) * n >> 32); }

// A fair draw alone would keep all blocks in step.  So in half of the draws the best ranked block of a few candidates
// wins; in the other half not, so that no thread waits forever for one that never runs.
Thread* draw() {
  std::vector<Thread*>& threads = state.runnable;
  if (threads.empty()) return nullptr;
  size_t best = random_below(threads.size());
  if (state.tournament > 1 && random_bits() & 1)
    for (int i = 1; i < state.tournament; ++i) {
      const size_t other = random_below(threads.size());
      if (threads[other]->block->rank < threads[best]->block->rank) best = other;
    }
  Thread* const next = threads[best];
  threads[best] = threads.back();
  threads.pop_back();
  return next;
}

void go(Thread* next) {
  Thread* const self = state.current;
  if (next == self) return;
  state.current = next;
  self->fiber.switch_to(next ? next->fiber : *main_fiber);
}

void wait(const char* what, Place place) {
  state.current->waits_at = what;
  state.current->place = place;
  go(draw());
}

void wake(Thread& thread) {
  thread.waits_at = nullptr;
  if (&thread != state.current) state.runnable.push_back(&thread);
  state.idle = 0;
}

bool same(Place a, Place b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

const char* const kNames[] = {"__syncwarp", "__ballot_sync", "__shfl_sync", "__shfl_xor_sync", "__shfl_down_sync"};
const char kBlock[] = "__syncthreads", kGrid[] = "grid.sync";

Thread* const* warp_of(const Thread& thread) { return thread.block->threads.data() + 32 * thread.warp(); }
int lanes_of(const Thread& thread) { return std::min(32, int(thread.block->threads.size()) - 32 * thread.warp()); }

void end_thread() {
  Thread& self = *state.current;
  if (self.block->at_barrier)
    fail(text(self.block->barrier), "%s that not all reach: others wait, and this thread has exited", kBlock);
  if (state.at_grid_barrier)
    fail(text(state.grid_barrier), "%s that not all reach: others wait, and this thread has exited", kGrid);
  for (int i = 0; i < lanes_of(self); ++i) {
    const Thread& other = *warp_of(self)[i];
    if (other.waits_at && other.op.mask >> self.lane() & 1)
      fail(text(other.place), "%s that not all reach: thread %d waits, and this thread has exited", other.waits_at,
           other.number);
  }
  self.exited = true;
  ++self.block->exited;
  ++state.exited;
  state.idle = 0;
  go(nullptr);
}

// No exception may leave the fiber, nor be alive when it is left for good.
void thread_main() {
  Fiber::entered(*main_fiber);
  char error[256] = "";
  try {
    state.work.run(state.work.arguments);
  } catch (const std::exception& caught) {
    std::snprintf(error, sizeof(error), "exception: %s", caught.what());
  } catch (...) {
    std::snprintf(error, sizeof(error), "exception");
  }
  if (error[0]) fail("in the kernel", "%s", error);
  end_thread();
}

uint3 split(unsigned i, dim3 size) { return {i % size.x, i / size.x % size.y, i / size.x / size.y}; }

void start_block(unsigned number) {
  if (free_blocks.empty()) free_blocks.emplace_back(new Block);
  state.blocks.push_back(std::move(free_blocks.back()));
  free_blocks.pop_back();
  Block& block = *state.blocks.back();
  block.number = int(number);
  block.index = split(number, state.grid);
  block.rank = random_bits();
  block.exited = block.at_barrier = 0;
  block.epoch = 0;
  block.shared.clear();
  std::memset(block.arena.get(), 0xff, Block::kArena);  // NaN, or -1
  const unsigned threads = state.block.x * state.block.y * state.block.z;
  for (unsigned i = 0; i < threads; ++i) {
    if (free_threads.empty()) {
      all_threads.emplace_back(new Thread(int(all_threads.size())));
      free_threads.push_back(all_threads.back().get());
    }
    Thread& thread = *free_threads.back();
    free_threads.pop_back();
    thread.block = &block;
    thread.number = int(i);
    thread.index = split(i, state.block);
    thread.exited = false;
    thread.waits_at = nullptr;
    thread.segment = 0;
    thread.clock = 1;
    thread.operations = 0;
    std::fill(std::begin(thread.seen), std::end(thread.seen), 0);
    thread.fiber.prepare(thread_main);
    block.threads.push_back(&thread);
    state.runnable.push_back(&thread);
  }
}

void recycle(std::unique_ptr<Block> block) {
  free_threads.insert(free_threads.end(), block->threads.begin(), block->threads.end());
  block->threads.clear();
  free_blocks.push_back(std::move(block));
}

std::string deadlock() {
  std::map<std::string, std::vector<int>> waiting;
  for (auto& block : state.blocks)
    for (Thread* thread : block->threads)
      if (!thread->exited) {
        const std::string where =
            std::to_string(block->number) + " at " + thread->waits_at + ", " + text(thread->place);
        waiting[where].push_back(thread->number);
      }
  std::string what = "deadlock";
  int listed = 0;
  for (auto& [where, threads] : waiting)
    if (++listed <= 8)
      what += "; thread " + std::to_string(threads[0]) + " and " + std::to_string(threads.size() - 1) +
              " more of block " + where;
  return what + (listed > 8 ? "; ..." : "") + " (seed " + std::to_string(device().seed) + ")";
}

}  // namespace

Device& device() {
  static Device device;
  return device;
}
Launches& launches() {
  static Launches launches;
  return launches;
}

const char* text(Place place) {
  static char buffers[2][512];
  static int turn = 0;
  char* const buffer = buffers[turn ^= 1];
  std::snprintf(buffer, sizeof(buffers[0]), "%s:%d", place.file, place.line);
  return buffer;
}

void fail(const char* place, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const size_t size = sizeof(state.error), n = size_t(std::vsnprintf(state.error, size, format, arguments));
  va_end(arguments);
  if (n < size)
    std::snprintf(state.error + n, size - n, "; block %d, thread %d, %s (seed %llu)", state.current->block->number,
                  state.current->number, place, static_cast<unsigned long long>(device().seed));
  state.failed = true;
  go(nullptr);
  __builtin_unreachable();
}

void launch(const Work& work, dim3 grid, dim3 block, Mode mode) {
  const bool cooperative = mode.cooperative;
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z, threads = uint64_t(block.x) * block.y * block.z;
  const size_t resident = size_t(device().multiprocessors) * size_t(device().blocks_per_multiprocessor);
  if (state.current) throw Error("a launch inside a kernel");
  if (blocks == 0 || blocks > INT32_MAX || threads == 0)
    throw Error("empty or too large: grid of " + std::to_string(blocks) + " blocks of " + std::to_string(threads) +
                " threads");
  if (threads > 1024) throw Error("block of " + std::to_string(threads) + " threads, more than 1024");
  if (cooperative && !device().cooperative) throw Error("this device has no cooperative launch");
  if (cooperative && blocks > resident)
    throw Error("cooperative grid too large: " + std::to_string(blocks) + " blocks, " + std::to_string(resident) +
                " fit");
  if (mode.shared > device().shared_per_block)
    throw Error(std::to_string(mode.shared) + " bytes of dynamic shared memory, " +
                std::to_string(device().shared_per_block) + " fit");
  ++(cooperative ? launches().cooperative : launches().plain);

  main_fiber = std::make_unique<Fiber>();
  state.work = work;
  state.grid = grid;
  state.block = block;
  state.cooperative = cooperative;
  state.dynamic_shared = mode.shared;
  state.runnable.clear();
  state.exited = state.at_grid_barrier = 0;
  state.grid_epoch = 0;
  state.random = device().seed;
  state.tournament = 1 << random_below(4);
  state.idle = 0;
  state.failed = false;
  new_launch();
  reset_store_buffers();

  std::vector<unsigned> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(i)]);
  std::string error;
  for (size_t started = 0; error.empty();) {
    while (started < order.size() && state.blocks.size() < resident) start_block(order[started++]);
    if (state.blocks.empty()) break;
    if (Thread* next = draw()) {
      state.current = next;
      main_fiber->switch_to(next->fiber);  // back when a thread has ended, or failed, or none can run
      if (state.failed) error = state.error;
    } else {
      error = deadlock();
    }
    for (size_t i = 0; i < state.blocks.size(); ++i)
      if (!error.empty() || size_t(state.blocks[i]->exited) == state.blocks[i]->threads.size()) {
        recycle(std::move(state.blocks[i]));
        state.blocks.erase(state.blocks.begin() + std::ptrdiff_t(i--));
      }
  }
  state.current = nullptr;
  if (!error.empty()) throw Error(error);
  drain_all();
}

uint3 thread_index() { return state.current->index; }
uint3 block_index() { return state.current->block->index; }
dim3 block_size() { return state.block; }
dim3 grid_size() { return state.grid; }

void pause() {
  if (++state.idle > kIdle)
    fail("in the kernel", "livelock: threads run, but none does anything that others could see");
  drain_some();
  state.runnable.push_back(state.current);
  go(draw());
}

void block_barrier(Place place) {
  Thread& self = *state.current;
  Block& block = *self.block;
  ++self.operations;
  if (block.exited) fail(text(place), "%s that not all reach: another thread has exited", kBlock);
  if (block.at_barrier && !same(place, block.barrier))
    fail(text(place), "%s that not all reach: others wait at %s", kBlock, text(block.barrier));
  block.barrier = place;
  if (size_t(++block.at_barrier) < block.threads.size()) return wait(kBlock, place);
  block.at_barrier = 0;
  ++block.epoch;
  for (Thread* thread : block.threads) {
    thread->segment = 0;
    wake(*thread);
  }
  pause();
}

void grid_barrier(Place place) {
  ++state.current->operations;
  if (!state.cooperative) fail(text(place), "%s in a launch that is not cooperative", kGrid);
  if (state.exited) fail(text(place), "%s that not all reach: another thread has exited", kGrid);
  if (state.at_grid_barrier && !same(place, state.grid_barrier))
    fail(text(place), "%s that not all reach: others wait at %s", kGrid, text(state.grid_barrier));
  state.grid_barrier = place;
  if (size_t(++state.at_grid_barrier) < state.blocks.size() * state.current->block->threads.size())
    return wait(kGrid, place);
  state.at_grid_barrier = 0;
  drain_all();
  ++state.grid_epoch;
  for (auto& block : state.blocks)
    for (Thread* thread : block->threads) {
      thread->segment = 0;
      wake(*thread);
    }
  pause();
}

namespace {

// The lane that `thread` reads from.  As in PTX: beyond its part of the warp a thread gets its own value.
int source(const Thread& thread) {
  const WarpOp& op = thread.op;
  const int lane = thread.lane(), first = lane & ~(op.width - 1), last = first + op.width - 1;
  if (op.kind == WarpOp::shuffle) return first + (op.lane & (op.width - 1));
  const int from = op.kind == WarpOp::shuffle_xor ? lane ^ op.lane : lane + op.lane;
  if (from < 0 || (op.kind == WarpOp::shuffle_xor && from > 31)) fail(text(thread.place), "shuffle from lane %d", from);
  return from > last ? lane : from;
}

void complete(const WarpOp& op, Thread* const* lanes) {
  unsigned long long ballot = 0;
  uint32_t seen[32] = {};
  for (unsigned left = op.mask; left; left &= left - 1) {
    Thread& thread = *lanes[__builtin_ctz(left)];
    if (thread.op.value & 1) ballot |= left & -left;
    if (op.kind == WarpOp::sync) {
      thread.seen[thread.lane()] = thread.clock++;
      thread.segment = 0;
      for (int i = 0; i < 32; ++i) seen[i] = std::max(seen[i], thread.seen[i]);
    }
  }
  for (unsigned left = op.mask; left; left &= left - 1) {
    Thread& thread = *lanes[__builtin_ctz(left)];
    thread.result = ballot;
    if (op.kind == WarpOp::sync) std::copy(seen, seen + 32, thread.seen);
    if (op.kind >= WarpOp::shuffle) thread.result = lanes[source(thread)]->op.value;
    wake(thread);
  }
}

}  // namespace

unsigned long long warp(const WarpOp& op, Place place) {
  Thread& self = *state.current;
  const char* const name = kNames[op.kind];
  if (!(op.mask >> self.lane() & 1)) fail(text(place), "%s whose mask %08x leaves out its caller", name, op.mask);
  if (op.width < 1 || op.width > 32 || (op.width & (op.width - 1))) fail(text(place), "%s of width %d", name, op.width);
  ++self.operations;
  self.op = op;
  self.place = place;
  if (op.kind >= WarpOp::shuffle && !(op.mask >> source(self) & 1))
    fail(text(place), "%s from lane %d, which its mask %08x leaves out", name, source(self), op.mask);

  Thread* const* const lanes = warp_of(self);
  const int count = lanes_of(self);
  bool all = true;
  for (unsigned left = op.mask; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (lane >= count || lanes[lane]->exited)
      fail(text(place), "%s whose mask %08x names lane %d, which has %s", name, op.mask, lane,
           lane < count ? "exited" : "never been");
    const Thread& other = *lanes[lane];
    if (&other == &self) continue;
    // A lane may be busy in another operation that does not concern us, and come here later.
    const bool in_warp_op = other.waits_at && other.waits_at != kBlock && other.waits_at != kGrid;
    if (!in_warp_op || !(other.op.mask >> self.lane() & 1)) all = false;
    else if (other.op.kind != op.kind || other.op.mask != op.mask || !same(other.place, place))
      fail(text(place), "%s with mask %08x, while thread %d waits for this one at %s with mask %08x, %s", name, op.mask,
           other.number, other.waits_at, other.op.mask, text(other.place));
  }
  if (!all) {
    wait(name, place);
  } else {
    complete(op, lanes);
    pause();
  }
  return self.result;
}

void assertion_failed(const char* condition, Place place) { fail(text(place), "device-side assert: %s", condition); }

}  // namespace host_cuda
