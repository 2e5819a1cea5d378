// The ASD objective of a batch of clients on a GPU: one launch, no synchronisation.  No torch: a CUDA program
// can call it as it is.  Pointers are to memory of the current device.
#pragma once

#include <cuda_runtime.h>

#include "../asd/problem.h"
#include "allocate.h"

namespace fedasd::cuda {

// Both return when the work is queued.  Allocate is called at most once, and not at all where a client's batch fits one
// block and the teacher is cached.  They throw std::runtime_error if CUDA refuses the launch.  Labels out
// of range, rows outside the cache, labels other than the cache's and shares that are not positive are
// device-side asserts.
void loss_and_gradient(const Problem&, const Allocate&, cudaStream_t);
void build_cache(const CacheProblem&, cudaStream_t);

}  // namespace fedasd::cuda
