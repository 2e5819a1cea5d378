// The sum of the blocks' partial losses (csrc/cuda/loss_sum.cuh) under weak memory: every loss is right in every
// schedule.  Compiled again with one part of the protocol left out, the test expects to find a schedule that goes
// wrong.
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "on_host.h"

#if defined(LOSS_SUM_WITHOUT_fence)
#define __threadfence() host_cuda::pause()
#elif defined(LOSS_SUM_WITHOUT_barrier)
#define __syncwarp() host_cuda::pause()
#endif
#include "cuda/loss_sum.cuh"

namespace {

using fedasd::cuda::LossSumShared;
using fedasd::cuda::Parameters;

void kernel(Parameters<float> p) {
  FEDASD_SHARED(LossSumShared, shared);
  const int64_t client = int(blockIdx.x) / p.blocks_per_client;
  fedasd::cuda::sum_losses(p, client, 1.0 + int(blockIdx.x) * 0.25 + int(threadIdx.x) * 0.001, shared);
}

// How many of the losses are wrong.
int wrong(int clients, int blocks, uint64_t seed) {
  constexpr int kThreads = 64;
  fedasd::Problem problem;
  problem.clients = clients;
  std::vector<double> loss(size_t(clients), std::nan(""));
  std::vector<uint64_t> partial(size_t(2 * clients * blocks), 0xa5a5a5a5a5a5a5a5u);
  problem.loss = {loss.data(), true};
  Parameters<float> p(problem);
  p.blocks_per_client = blocks;
  p.partial_loss = partial.data();
  p.stamp = 77;
  int errors = 0;
  for (int replay = 0; replay < 2; ++replay) {  // a CUDA graph launches again with the same stamp
    for (double& x : loss) x = std::nan("");
    on_host::set_device(3, false, 2 * seed + uint64_t(replay));
    host_cuda::launch(kernel, dim3(unsigned(clients * blocks)), dim3(kThreads), false, p);
    for (int k = 0; k < clients; ++k) {
      double expected = 0;
      for (int b = 0; b < blocks; ++b)
        for (int t = 0; t < kThreads; ++t) expected += 1.0 + (k * blocks + b) * 0.25 + t * 0.001;
      errors += !(std::fabs(loss[size_t(k)] - expected) < 1e-9);
    }
    for (uint64_t word : partial) errors += blocks > 1 && word != 0;
  }
  return errors;
}

}  // namespace

int main() {
  int errors = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) errors += wrong(1 + int(seed % 3), 1 + int(seed % 5), seed);
  errors += wrong(1, 70, 1);  // more blocks than lanes
#if defined(LOSS_SUM_WITHOUT_nothing)
  CHECK(errors == 0, "wrong losses", errors);
#else
  CHECK(errors > 0, "the missing part went unnoticed");
#endif
  return check::finish();
}
