// The client update on the CPU.  No torch: a C++ program can call it as it is.
//
// The same call gives the same bits for any number of threads, and a client the same bits alone and in a stack.
#pragma once

#include "../update/problem.h"
#include "parallel.h"

namespace fedasd::cpu {

// w and velocity (saved) must not overlap each other or anything that is read.
void local_step(const LocalStep&, const Parallel&);
void ascend(const Ascent&, const Parallel&);
// Values beyond what int64 holds, and NaN, become what the CPU's own conversion makes of them.
void accumulate(const Accumulation&, const Parallel&);

}  // namespace fedasd::cpu
