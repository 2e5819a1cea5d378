// The ASD objective of a batch of clients on the CPU.  No torch: a C++ program can call it as it is.
#pragma once

#include "../asd/problem.h"
#include "parallel.h"

namespace fedasd::cpu {

// Both throw std::invalid_argument, naming argument, place, value and remedy, before writing a number
// for the client concerned.
void loss_and_gradient(const Problem&, const Parallel&);
void build_cache(const CacheProblem&, const Parallel&);

}  // namespace fedasd::cpu
