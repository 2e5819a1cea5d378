// Row length -> compiled kernel.  Instantiated by the .cu files, a few kernels each, so that they compile side by side.
#pragma once

#include "cache.cuh"
#include "kernels.h"
#include "objective.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <class T, bool cached>
Kernel<Parameters<T>> objective_of(int64_t classes, bool kl) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    const auto run = kl ? objective_kernel<Team, cached, true> : objective_kernel<Team, cached, false>;
    return Kernel<Parameters<T>>{run, tile.lanes, Team::kMaxThreads};
  });
}

template <class T>
Kernel<CacheParameters<T>> build_cache_of(int64_t classes) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<CacheParameters<T>>{build_cache_kernel<Team>, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
