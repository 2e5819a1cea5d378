#include "traffic.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "state.h"

namespace host_cuda {
namespace {

struct Access {
  uintptr_t buffer;
  uint64_t launch;
  int block, warp, lane;
  uint32_t operations;  // shuffles and barriers of the thread before it
  const void* code;
  bool write;
  unsigned bytes;
  uintptr_t address;
  uint32_t turn;  // of the lane, at this instruction between the two operations

  auto place() const { return std::make_tuple(buffer, write, launch, block, warp, operations, code); }
};
std::vector<Access> accesses;
bool recording = false;

}  // namespace

void record(const Region& region, uintptr_t address, size_t bytes, bool write, const void* code) {
  if (!recording) return;
  const Thread& self = *state.current;
  accesses.push_back({region.begin, state.launch, self.block->number, self.warp(), self.lane(), self.operations, code,
                      write, unsigned(bytes), address, 0});
}

Recording::Recording() {
  accesses.clear();
  recording = true;
}
Recording::~Recording() { recording = false; }

Traffic Recording::of(const void* buffer, bool write) const {
  std::vector<Access> found;
  for (const Access& a : accesses)
    if (a.write == write && a.buffer == uintptr_t(buffer)) found.push_back(a);
  std::stable_sort(found.begin(), found.end(), [](const Access& a, const Access& b) {
    return std::make_tuple(a.place(), a.lane) < std::make_tuple(b.place(), b.lane);
  });
  for (size_t i = 1; i < found.size(); ++i)
    if (found[i].place() == found[i - 1].place() && found[i].lane == found[i - 1].lane)
      found[i].turn = found[i - 1].turn + 1;
  std::sort(found.begin(), found.end(), [](const Access& a, const Access& b) {
    return std::make_tuple(a.place(), a.turn, a.address) < std::make_tuple(b.place(), b.turn, b.address);
  });
  Traffic sum;
  uintptr_t bytes_end = 0, sectors_end = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const Access& a = found[i];
    if (i == 0 || a.place() != found[i - 1].place() || a.turn != found[i - 1].turn) {
      ++sum.requests;
      bytes_end = sectors_end = 0;
    }
    const uintptr_t end = a.address + a.bytes;
    if (end > bytes_end) sum.bytes += end - std::max(a.address, bytes_end), bytes_end = end;
    const uintptr_t first = std::max(a.address / 32, sectors_end), last = (end - 1) / 32 + 1;
    if (last > first) sum.sectors += last - first, sectors_end = last;
  }
  return sum;
}

}  // namespace host_cuda
