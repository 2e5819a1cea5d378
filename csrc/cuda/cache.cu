// Builds the teacher cache.  Its rows do not depend on each other.
#include "batch.cuh"
#include "elements.cuh"
#include "kernels.cuh"
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
    const Softmax<T> s = team.template student_softmax<SoftmaxSums::two_and_moment>(k.at_tau, k.at_tau_h);
    const T inverse = 1 / s.sum, log_sum = log_e(s.sum);
    T mean = 0;
    team.map_student(out, rows.type, -1, T(0), [&](T t) {
      const T shifted = t - s.shift;
      if (rows.logarithms) return shifted * k.inv_tau - log_sum;
      // The sum uses the row as it is stored, so that a student equal to the teacher has divergence 0 (up
      // to rounding of the sums) in every storage type.
      const T stored = rounded_to(rows.type, exp_2(shifted * k.at_tau) * inverse);
      mean += product_or_zero(stored, shifted * k.inv_tau);
      return stored;
    });
    team.store(out, rows.type);
    mean = team.sum(mean);
    if (!team.leader()) continue;
    const T log_proportion = checked_log_proportion(T(problem.label_prior.at(client, label)));
    problem.constant[i] = rows.logarithms ? 0 : double(mean - log_sum);
    problem.log_weight[i] = row_log_weight(s, element<T>(row, label), log_proportion, k, o.not_true);
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
