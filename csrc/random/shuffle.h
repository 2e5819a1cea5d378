// The order of clients' samples in every epoch: one Fisher-Yates shuffle for each client and epoch.
#pragma once

#include <cstdint>

#include "philox.h"

namespace fedasd::random {

// order[0 .. n) becomes a random order of 0 .. n - 1.  A block has two draws: position i takes the (i % 2)th of block
// i / 2, and is swapped with a position of at most i.
[[gnu::always_inline]] inline void shuffle(const ClientStream& stream, uint32_t epoch, int64_t* order, uint32_t n) {
  constexpr int kLanes = 16;
  for (uint32_t i = 0; i < n; ++i) order[i] = i;
  // From the first position on, so that draws are made and used a block of lanes at a time.
  for (uint32_t first = 0; first < n; first += 2 * kLanes) {
    const auto block = stream.blocks<kLanes>(first / 2, epoch);
    const uint32_t end = n - first < 2 * kLanes ? n : first + 2 * kLanes;
    for (uint32_t i = first; i < end; ++i) {
      const uint32_t lane = (i - first) / 2, half = 2 * (i % 2);
      const uint32_t j = below(i + 1, block.word[half][lane], block.word[half + 1][lane]);
      const int64_t here = order[i];
      order[i] = order[j];
      order[j] = here;
    }
  }
}

}  // namespace fedasd::random
