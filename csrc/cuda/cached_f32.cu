// The objective with a cached teacher, float arithmetic.
#include "kernels.h"
#include "objective.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <>
Kernel<Parameters<float>> cached_kernel<float>(int64_t classes, bool kl) {
  return with_tile(float{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<Parameters<float>>{kl ? objective_kernel<Team, true, true> : objective_kernel<Team, true, false>, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
