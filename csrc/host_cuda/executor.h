// Runs CUDA kernels on the CPU, to test them without a GPU.  Each CUDA thread is a fiber; one system thread runs them
// all, in an order drawn from a seed, and what a GPU leaves undefined is an Error with a place in the source.
//
//   race           two threads access a byte, one writes, and no barrier orders them: whatever the order they happened
//                  to run in.  Barriers are __syncthreads and grid.sync, and __syncwarp for the lanes of its mask;
//                  shuffles and votes are none, because CUDA promises no order of memory for them.  Atomics, __ldcg and
//                  __stcg are the declared way to talk across blocks, and never race; nor do relaxed loads and
//                  stores, but what they store is seen by other blocks late, unless a fence comes after it.
//   out of bounds  a kernel may touch its own stack, its arguments, its block's shared memory, registered buffers, and
//                  may read the variables of the program.  All the rest is an error: the heap, the host's stack, other
//                  threads' stacks, the red zones around shared objects.  While no buffer is registered, memory the
//                  executor does not know is not checked.
//   misaligned     wide loads and stores off their alignment; index of an array outside its bounds.
//   barriers       not reached by all, or from different lines; shuffles without a lane of their mask; deadlock.
//
// The first three need the kernels' source files compiled by fedasd_kernels_on_host() in CMakeLists.txt: the compiler
// then calls hooks.cpp at each memory access.  It does not for memcpy and the like of more than a few bytes, and clang
// does not check the alignment of a struct that is copied whole.  Nothing here may be used by two system threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include "vector_types.h"

namespace host_cuda {

struct Device {
  int multiprocessors = 2, blocks_per_multiprocessor = 2;  // their product is how many blocks are alive at a time
  bool cooperative = true;
  uint64_t seed = 0;                   // the order of blocks and threads; a launch depends on nothing else
  size_t shared_per_block = 99 << 10;  // static and dynamic, as sm_86, 89 and 120 have it
};
Device& device();

struct Launches {
  int plain = 0, cooperative = 0;
  int total() const { return plain + cooperative; }
};
Launches& launches();

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Memory that kernels may use, from now on.  Buffers must not overlap.
void register_global(const void* data, size_t bytes, const char* name, bool read_only = false);
void unregister_global(const void* data);

// The same for a scope.
class Buffer {
 public:
  Buffer(const void* data, size_t bytes, const char* name, bool read_only = false) : data_(data) {
    register_global(data, bytes, name, read_only);
  }
  ~Buffer() { unregister_global(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

 private:
  const void* data_;
};

struct Work {  // what every thread of a launch does, and the memory that holds the kernel's arguments
  void (*run)(const void* arguments);
  const void* arguments;
  size_t bytes;
};

struct Mode {
  Mode(bool is_cooperative, size_t dynamic_shared = 0) : cooperative(is_cooperative), shared(dynamic_shared) {}
  bool cooperative;
  size_t shared;  // bytes of dynamic shared memory
};
void launch(const Work& work, dim3 grid, dim3 block, Mode mode);

// Runs to completion or throws an Error.  An argument is converted to its parameter's type, as in a call.
template <class... P>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, Mode mode, const std::common_type_t<P>&... arguments) {
  using Call = std::pair<void (*)(P...), std::tuple<P...>>;
  const Call call(kernel, std::tuple<P...>(arguments...));
  auto run = [](const void* call) {
    std::apply(static_cast<const Call*>(call)->first, static_cast<const Call*>(call)->second);
  };
  launch(Work{run, &call, sizeof(call)}, grid, block, mode);
}

// What the headers with CUDA's names are made of; callable in kernels only.

struct Place {
  const char* file;
  int line;
};

// A thread keeps these for life, hence `const`: the compiler may ask once.
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) dim3 block_size();
__attribute__((const)) dim3 grid_size();

void pause();  // lets any thread run
void block_barrier(Place place);
void grid_barrier(Place place);

struct WarpOp {
  enum Kind { sync, ballot, shuffle, shuffle_xor, shuffle_down } kind;
  unsigned mask;
  unsigned long long value;
  int lane, width;  // of shuffles, as CUDA has them
};
unsigned long long warp(const WarpOp& op, Place place);

enum class Memory { plain, communication };
void load(void* to, const void* from, unsigned bytes, Memory memory);
void store(void* to, const void* from, unsigned bytes, Memory memory);
// Words of 64 bits through which blocks talk, see store_buffer.cpp.
uint64_t load_relaxed(const uint64_t* from);
void store_relaxed(uint64_t* to, uint64_t value);
void fence();
void* shared(const void* key, size_t bytes, size_t alignment, const char* name);
void* dynamic_shared(const char* name);
[[noreturn]] void assertion_failed(const char* condition, Place place);

}  // namespace host_cuda
