// The objective with the teacher's logits, double arithmetic.
#include "kernels.h"
#include "objective.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <>
Kernel<Parameters<double>> raw_kernel<double>(int64_t classes, bool kl) {
  return with_tile(double{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<Parameters<double>>{kl ? objective_kernel<Team, false, true> : objective_kernel<Team, false, false>, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
