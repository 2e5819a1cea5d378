// The ASD objective of a batch of clients on the CPU.  No torch: a C++ program can call it as it is.
#pragma once

#include <cstdint>
#include <functional>

#include "../asd/problem.h"

namespace fedasd::cpu {

// Splits [0, n) into ranges of at least `grain`, runs them, and returns when all are done.
struct Parallel {
  int threads = 1;
  std::function<void(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>&)> run;
};

// Both throw std::invalid_argument, naming argument, place, value and remedy, before writing a number
// for the client concerned.
void loss_and_gradient(const Problem&, const Parallel&);
void build_cache(const CacheProblem&, const Parallel&);

}  // namespace fedasd::cpu
