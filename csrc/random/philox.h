// Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011): random words as a function of a key
// and a counter, so that any number of any stream can be had at once, in any order, by any thread.
//
// The package's numpy twin is common/philox.py; both give the same words.
#pragma once

#include <cstdint>

namespace fedasd::random {

struct Key {
  uint32_t low = 0, high = 0;
};

// Counters, or the words made from them: [4, lanes].  Loops over lanes are what the compiler turns into vectors.
template <int lanes>
struct Blocks {
  uint32_t word[4][lanes];
};

template <int lanes>
[[gnu::always_inline]] inline void philox(Blocks<lanes>& block, Key key) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < lanes; ++i) {
      const uint64_t first = uint64_t{0xD2511F53} * block.word[0][i];
      const uint64_t second = uint64_t{0xCD9E8D57} * block.word[2][i];
      block.word[0][i] = uint32_t(second >> 32) ^ block.word[1][i] ^ key.low;
      block.word[1][i] = uint32_t(second);
      block.word[2][i] = uint32_t(first >> 32) ^ block.word[3][i] ^ key.high;
      block.word[3][i] = uint32_t(first);
    }
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
}

// What the numbers of a client in a round are counted by.  The last word is the round, 0 where there is none.
struct ClientStream {
  Key key;
  uint32_t client = 0, round = 0;

  // The blocks at first, first + 1, .. of a part of the stream.
  template <int lanes>
  [[gnu::always_inline]] inline Blocks<lanes> blocks(uint32_t first, uint32_t part) const {
    Blocks<lanes> block;
    for (int i = 0; i < lanes; ++i) {
      block.word[0][i] = first + uint32_t(i);
      block.word[1][i] = part;
      block.word[2][i] = client;
      block.word[3][i] = round;
    }
    philox(block, key);
    return block;
  }
};

// A whole number below n from 64 random bits.  The most and the least likely differ by a factor of 1 + n / 2^64.
inline uint32_t below(uint32_t n, uint32_t high, uint32_t low) {
  return uint32_t((uint64_t{high} * n + (uint64_t{low} * n >> 32)) >> 32);
}

}  // namespace fedasd::random
