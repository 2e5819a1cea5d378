// The ASD objective of a batch of clients on a GPU: one launch, no synchronisation.  No torch: a CUDA program
// can call it as it is.  Pointers are to memory of the current device.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "../asd/problem.h"

namespace fedasd::cuda {

// Gives memory that may be reused when the work queued on the stream so far is done.  Its content does not
// matter.  Called at most once, and not at all where a client's batch fits one block and the teacher is cached.
using Allocate = std::function<void*(size_t bytes)>;

// Both return when the work is queued.  They throw std::runtime_error if CUDA refuses the launch.  Labels out
// of range, rows outside the cache, labels other than the cache's and shares that are not positive are
// device-side asserts.
void loss_and_gradient(const Problem&, const Allocate&, cudaStream_t);
void build_cache(const CacheProblem&, cudaStream_t);

}  // namespace fedasd::cuda
