// Common parts of the tests that run CUDA kernels on the CPU (csrc/host_cuda).
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "arrays.h"

namespace on_host {

using arrays::Memory;

// The arrays that a kernel may touch, for as long as it runs.
struct Registered {
  explicit Registered(const std::vector<Memory>& all) : memory(all) {
    for (const Memory& m : memory)
      if (m.bytes) host_cuda::register_global(m.data, m.bytes, m.name, m.read_only);
  }
  ~Registered() {
    for (const Memory& m : memory)
      if (m.bytes) host_cuda::unregister_global(m.data);
  }
  const std::vector<Memory>& memory;
};

// A device of so many resident blocks, and a schedule.
inline void set_device(int blocks, bool cooperative, uint64_t seed) {
  host_cuda::device() = {blocks, 1, cooperative, seed};
}

// How many launches f makes.
template <class F>
host_cuda::Launches count(F f) {
  host_cuda::launches() = {};
  f();
  return host_cuda::launches();
}

}  // namespace on_host
