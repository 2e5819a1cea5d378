// Weak memory: a word that a block has stored relaxed is seen by that block at once, and by others at some time.
//
// Every block has a buffer of such words.  They leave it one by one, at random moments and in any order but that of two
// words at one address; __threadfence empties the buffer of its block, and a barrier of the grid those of all.  So a
// fence that is missing shows: in some schedules the others do not see in time what was stored.
#include <vector>

#include "state.h"

namespace host_cuda {
namespace {

struct Word {
  int block;
  uint64_t* to;
  uint64_t value;
};
std::vector<Word> pending;  // of all blocks, the oldest first
uint64_t odds;              // that a word leaves at a switch of threads: one in so many

// Writes one of the words to memory: the oldest at that address of that block.
void commit(size_t chosen) {
  size_t i = 0;
  while (pending[i].block != pending[chosen].block || pending[i].to != pending[chosen].to) ++i;
  if (*pending[i].to != pending[i].value) state.idle = 0;
  *pending[i].to = pending[i].value;
  for (; i + 1 < pending.size(); ++i) pending[i] = pending[i + 1];
  pending.pop_back();
}

}  // namespace

void reset_store_buffers() {
  pending.clear();
  // Not drawn from random_bits(): the schedules of kernels that store nothing relaxed stay as they are.
  odds = uint64_t(1) << (device().seed * 0x9e3779b97f4a7c15u >> 32) % 11;
}

void drain_some() {
  if (!pending.empty() && random_bits() % odds == 0) commit(random_bits() % pending.size());
}

void drain_all() {
  while (!pending.empty()) commit(0);
}

void fence() {
  pause();
  const int own = state.current->block->number;
  for (size_t i = 0; i < pending.size();)
    if (pending[i].block == own) commit(i);
    else ++i;
}

uint64_t load_relaxed(const uint64_t* from) {
  pause();
  access(uintptr_t(from), sizeof *from, false, Memory::communication, __builtin_return_address(0));
  uint64_t value = *from;
  for (const Word& word : pending)
    if (word.to == from && word.block == state.current->block->number) value = word.value;
  return value;
}

void store_relaxed(uint64_t* to, uint64_t value) {
  pause();
  access(uintptr_t(to), sizeof *to, true, Memory::communication, __builtin_return_address(0));
  pending.push_back({state.current->block->number, to, value});
}

}  // namespace host_cuda
