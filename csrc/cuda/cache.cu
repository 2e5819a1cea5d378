// Building the teacher cache.
#include "cache.cuh"
#include "kernels.h"
#include "tiles.cuh"

namespace fedasd::cuda {

template <class T>
Kernel<CacheParameters<T>> cache_kernel(int64_t classes) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<CacheParameters<T>>{build_cache_kernel<Team>, tile.lanes, Team::kMaxThreads};
  });
}
template Kernel<CacheParameters<float>> cache_kernel<float>(int64_t);
template Kernel<CacheParameters<double>> cache_kernel<double>(int64_t);

}  // namespace fedasd::cuda
