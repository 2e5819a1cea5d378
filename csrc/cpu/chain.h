// The local training of a whole cohort on the CPU, in one call.  No torch: a C++ program can call it as it is.
//
// The bits of a client's result depend on that client alone, not on the others or the number of threads.
#pragma once

#include "../chain/problem.h"
#include "parallel.h"

namespace fedasd::cpu {

// Throws std::invalid_argument, naming the client, for what the loss refuses.  Returns false if it was stopped.
bool train_clients(const ChainTraining&, const Parallel&);

}  // namespace fedasd::cpu
