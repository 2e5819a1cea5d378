// Counts the 32-byte sectors that warps ask memory for, buffer by buffer.
//
// A GPU's warp executes a load or a store for all its lanes at once and moves whole sectors.  Here lanes run one by
// one, so their accesses are put together afterwards: those of one instruction, between the same two shuffles or
// barriers of their threads, the first of every lane, the second, and so on.
#pragma once

#include <cstdint>

namespace host_cuda {

struct Traffic {
  uint64_t requests = 0;  // instructions of a warp
  uint64_t sectors = 0;   // that they touch
  uint64_t bytes = 0;     // that they asked for, each once in a request
  // 1 where every byte of a sector that is moved is asked for.
  double ratio() const { return bytes ? 32.0 * double(sectors) / double(bytes) : 0; }
};

// While it lives, accesses to registered buffers are recorded.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  // Reads or writes of the buffer that begins there, so far.
  Traffic of(const void* buffer, bool write) const;
};

}  // namespace host_cuda
