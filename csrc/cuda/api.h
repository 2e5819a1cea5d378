// What a host program calls: the ASD objective, the teacher cache, the client update and the local training
// of whole cohorts on a GPU.  No torch: a CUDA
// program can use it as it is.  Pointers are to memory of the current device (Accumulation::scales: of the host).
//
// Every function returns when its work is queued on the stream, and throws std::runtime_error if CUDA refuses a launch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

#include "../asd/problem.h"
#include "../chain/problem.h"
#include "../update/problem.h"

namespace fedasd::cuda {

// Gives memory that may be reused when the work queued on the stream so far is done.  Its content does not matter.
using Allocate = std::function<void*(size_t bytes)>;

// The objective of all clients in one launch.  Allocate is called at most once, and only where several blocks share a
// client or the teacher's rows are logits.  Labels out of range, rows outside the cache, labels other than the cache's
// and label proportions that are not positive are device-side asserts.  With asd_weight 0 the teacher is not looked at.
// A float problem is computed in float: a row whose logits / temperature lie more than 3e38 apart may overflow.
void loss_and_gradient(const Problem&, const Allocate&, cudaStream_t);
void build_cache(const CacheProblem&, cudaStream_t);

// The client update in one launch.  A client's lr that is negative or not finite is a device-side assert.  Allocate is
// called at most once, and only where a norm is needed.
void local_step(const LocalStep&, const Allocate&, cudaStream_t);
void ascend(const Ascent&, const Allocate&, cudaStream_t);
// One launch for every 256 clients.
void accumulate(const Accumulation&, cudaStream_t);

// The local training of a cohort in one launch, one block a client.  A client needs shared_bytes() of shared memory
// (train_clients_layout.h); more than the device has is a std::runtime_error.  Sizes, epochs and orders that lead
// outside the arrays and labels out of range are device-side asserts.  Allocate is called at most once.  `stop` is not
// asked.
void train_clients(const ChainTraining&, const Allocate&, cudaStream_t);

}  // namespace fedasd::cuda
