// Counter-based random numbers of all clients of a cohort on the CPU.  No torch: a C++ program can call it as it is.
//
// Every number is a function of its stream and its place in it, so threads share the clients in any way.
#pragma once

#include <cstdint>
#include <vector>

#include "../random/synthetic.h"
#include "parallel.h"

namespace fedasd::cpu {

// Clients and how many samples each has.
struct Cohort {
  int64_t clients = 0;
  const int64_t *client = nullptr, *sizes = nullptr;  // [clients]
};

// Where each client's part begins, and at last the whole length: of `epochs[k]` (1 without them) times `sizes[k]`.
std::vector<int64_t> starts_of(const Cohort&, const int64_t* epochs = nullptr);

random::Key key_of(uint64_t key);

// An order of each client's samples for each of its epochs from `first_epoch` on; `orders` has starts.back() numbers.
struct EpochOrders {
  random::Key key;
  uint32_t round = 0, first_epoch = 0;
  const int64_t* epochs = nullptr;  // [clients]
};
void epoch_orders(const EpochOrders&, const Cohort&, const std::vector<int64_t>& starts, int64_t* orders,
                  const Parallel&);

// labels [N]; inputs [N, D], or null.
void synthetic_samples(const random::SyntheticPopulation&, const Cohort&, const std::vector<int64_t>& starts,
                       int64_t* labels, float* inputs, const Parallel&);
// Throws std::invalid_argument.
random::LabelDistribution distribution_of(const char* name);

// Philox4x32-10 of counters [n, 4].
void philox_words(random::Key, int64_t n, const uint32_t* counters, uint32_t* words);

}  // namespace fedasd::cpu
