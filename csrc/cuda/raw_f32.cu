// The objective with the teacher's logits, float arithmetic.
#include "kernels.h"
#include "objective.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <>
Kernel<Parameters<float>> raw_kernel<float>(int64_t classes, bool kl) {
  return with_tile(float{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<Parameters<float>>{kl ? objective_kernel<Team, false, true> : objective_kernel<Team, false, false>, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
