// Builds the teacher cache.  Its rows do not depend on each other.
#include "batch.cuh"
#include "elements.cuh"
#include "kernels.cuh"
#include "teacher_row.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <class Team>
__global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    build_cache_kernel(const CacheParameters<typename Team::T> p) {
  using T = typename Team::T;
  using Shared = typename Team::Shared;
  FEDASD_SHARED(Shared, shared);
  const CacheProblem& problem = p.problem;
  const Options& o = problem.options;
  const Scales<T>& k = p.scales;
  const CacheRows& rows = problem.rows;
  Team team(shared);

  const int64_t step = int64_t(gridDim.x) * team.teams(), all = problem.clients * problem.samples;
  for (int64_t i = int64_t(blockIdx.x) * team.teams() + team.index(); i < all; i += step) {
    const int64_t client = i / problem.samples;
    const int sample = int(i % problem.samples), classes = int(problem.classes);
    const int label = checked_label(problem.targets.at(client, sample), problem.classes, o.ignore_index);
    const RowView row = row_of(problem.teacher.client(client), sample);
    void* out = static_cast<char*>(rows.data) + i * problem.classes * size_of(rows.type);
    team.start(row, classes);
    if (label < 0) {
      team.clear(out, rows.type);
      team.store(out, rows.type);
      if (team.leader()) problem.constant[i] = problem.log_weight[i] = 0;
      continue;
    }
    team.load_student({row, o.not_true ? label : -1, -kInfinity<T>});
    const CachedRow<T> cached = cached_row(team, out, rows, k);
    if (!team.leader()) continue;
    const T log_proportion = checked_log_proportion(T(problem.label_prior.at(client, label)));
    problem.constant[i] = cached.constant;
    problem.log_weight[i] = row_log_weight(cached.softmax, element<T>(row, label), log_proportion, k, o.not_true);
  }
}

template <class T>
Kernel<CacheParameters<T>> build_cache_of(int64_t classes) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<CacheParameters<T>>{build_cache_kernel<Team>, tile.lanes, Team::kMaxThreads};
  });
}

template Kernel<CacheParameters<float>> build_cache_of<float>(int64_t);
template Kernel<CacheParameters<double>> build_cache_of<double>(int64_t);

}  // namespace fedasd::cuda
