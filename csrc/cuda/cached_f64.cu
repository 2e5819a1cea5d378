// The objective with a cached teacher, double arithmetic.
#include "kernels.h"
#include "objective.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <>
Kernel<Parameters<double>> cached_kernel<double>(int64_t classes, bool kl) {
  return with_tile(double{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<Parameters<double>>{kl ? objective_kernel<Team, true, true> : objective_kernel<Team, true, false>, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
