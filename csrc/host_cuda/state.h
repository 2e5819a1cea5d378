// State of the executor: the current launch, its blocks and their threads.
//
// A trap: of a template that is instantiated here and in a kernel's file the linker keeps one copy, maybe that with
// hooks.  So while a kernel runs the executor uses containers of its own types only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor.h"
#include "fiber.h"

namespace host_cuda {

// Who accessed a byte last.  A segment is the part of a thread's life between two barriers; 0 is nobody.
struct Event {
  uint32_t segment = 0;
  int32_t code = 0;  // address of the instruction, from &code_base
};
struct Cell {
  Event write, read, other_read;
};

struct Region {
  uintptr_t begin = 0;
  size_t bytes = 0;
  std::string name;
  bool read_only = false;
  const void* key = nullptr;  // of shared memory
  uint64_t launch = 0;        // that `cells` belong to
  std::vector<Cell> cells;    // one for each byte
};

struct Thread;
struct Block {
  static constexpr size_t kShared = 48 << 10, kRedZone = 512, kArena = 128 << 10;
  int number;
  uint3 index;
  uint64_t rank;  // for the scheduler
  std::vector<Thread*> threads;
  int exited, at_barrier;
  Place barrier;
  uint32_t epoch;  // barriers passed
  std::vector<Region> shared;
  std::unique_ptr<char[]> arena{new char[kArena]};
};

struct Thread {
  explicit Thread(int number) : fiber(number) {}
  Fiber fiber;
  Block* block;
  int number;  // in the block
  uint3 index;
  bool exited;
  const char* waits_at;  // the name of a barrier, or null
  Place place;           // of that barrier
  WarpOp op;
  unsigned long long result;
  uint32_t segment;     // 0: to be opened by the next access
  uint32_t clock;       // __syncwarps passed
  uint32_t operations;  // shuffles, votes and barriers so far
  uint32_t seen[32];    // the clocks of the warp's lanes up to which their accesses come before ours

  int lane() const { return number % 32; }
  int warp() const { return number / 32; }
};

struct State {
  uint64_t launch = 0;  // number
  Thread* current = nullptr;
  Work work;
  dim3 grid, block;
  bool cooperative;
  size_t dynamic_shared;                       // bytes
  std::vector<std::unique_ptr<Block>> blocks;  // alive
  std::vector<Thread*> runnable;
  int exited, at_grid_barrier;
  Place grid_barrier;
  uint32_t grid_epoch;
  uint64_t random;
  int tournament;
  uint64_t idle;  // switches since any thread did something that others can see
  bool failed;
  char error[2048];
};
extern State state;

// Ends the launch with an error at `place`; the thread does not go on, nothing is unwound.
[[noreturn]] void fail(const char* place, const char* format, ...) __attribute__((format(printf, 2, 3)));
const char* text(Place place);  // both return a buffer of their own
const char* text(const void* code);

// Every access by a kernel comes through here; `code` is where it was made.
void access(uintptr_t address, size_t bytes, bool write, Memory memory, const void* code);
void new_launch();
void record(const Region& region, uintptr_t address, size_t bytes, bool write, const void* code);  // traffic.cpp

uint64_t random_bits();
void reset_store_buffers();
void drain_some();
void drain_all();

}  // namespace host_cuda
