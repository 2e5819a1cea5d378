// The client update on a GPU: one launch, no synchronisation.  No torch: a CUDA program can call it as it is.
// Pointers are to memory of the current device (Accumulation::scales: of the host).
#pragma once

#include <cuda_runtime.h>

#include "../update/problem.h"
#include "allocate.h"

namespace fedasd::cuda {

// All return when the work is queued, and throw std::runtime_error if CUDA refuses the launch.  A per-client lr that is
// negative or not finite is a device-side assert.  Allocate is called at most once, and only where a norm is needed.
void local_step(const LocalStep&, const Allocate&, cudaStream_t);
void ascend(const Ascent&, const Allocate&, cudaStream_t);
// One launch for every 256 clients.
void accumulate(const Accumulation&, cudaStream_t);

}  // namespace fedasd::cuda
