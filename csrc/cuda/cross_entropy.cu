// The cross-entropy alone, for clients without a teacher: no weights, no divergence, no barrier between blocks.
#include "batch.cuh"
#include "elements.cuh"
#include "kernels.cuh"
#include "loss_sum.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

template <class Team>
struct CrossEntropyShared {
  typename Team::Shared team;
  BlockScratch<int, 1> valid;
  LossSumShared loss_sum;
};

// A block works for one client; rows are dealt to the teams of the client's blocks in turn.
template <class Team>
__global__ void __launch_bounds__(Team::kMaxThreads, Team::kMinBlocks)
    cross_entropy_kernel(const Parameters<typename Team::T> p) {
  using T = typename Team::T;
  using Shared = CrossEntropyShared<Team>;
  FEDASD_SHARED(Shared, shared);
  const Problem& problem = p.problem;
  const Options& o = problem.options;
  const RowsOfBlock own(p);
  Team team(shared.team, own.parts);

  const int64_t client = own.client;
  const int batch = int(problem.batch), classes = int(problem.classes);
  const int first = own.first * team.teams() + team.index(), step = own.step * team.teams();
  const Matrix student = problem.student.client(client);
  const DType type = student.type;
  auto label_of = [&](int row) {
    return checked_label(problem.targets.at(client, row), problem.classes, o.ignore_index);
  };

  // Every block counts the client's valid rows for itself instead of waiting for another block to do it.
  int valid[1] = {0};
  for (int row = int(threadIdx.x); row < batch; row += int(blockDim.x)) valid[0] += label_of(row) >= 0;
  block_reduce(valid, shared.valid, 0, Add{});
  const T weight = T(o.ce_weight) / T(valid[0]);  // of each valid row

  double loss = 0;
  // Backwards as in objective_kernel: the sum of the losses has the same order with and without a teacher.
  const int last = first < batch ? first + (batch - 1 - first) / step * step : -1;
  for (int row = last; row >= 0; row -= step) {
    const int label = label_of(row);
    const RowView logits = row_of(student, row);
    void* gradient = nullptr;
    if (problem.gradient)
      gradient = static_cast<char*>(problem.gradient) + (client * batch + row) * problem.classes * size_of(type);
    team.start(logits, classes);
    if (label < 0 || o.ce_weight == 0) {
      team.clear(gradient, type);
    } else {
      team.load_student({logits, -1, -kInfinity<T>});
      const Softmax<T> s = team.template student_softmax<SoftmaxSums::one>(p.scales.at_one, p.scales.at_one);
      // The exponentials of a long row are computed again for the gradient, see objective.cuh.
      const T shift = Team::kLong ? forgotten(s.shift) : s.shift, scale = 1 / s.sum * weight;
      if (team.leader()) loss += double(weight * (log_e(s.sum) + (s.shift - element<T>(logits, label))));
      if (gradient) {
        team.map_student(gradient, type, label, -weight,
                         [&](T z) { return exp_2((z - shift) * p.scales.at_one) * scale; });
      }
    }
    team.store(gradient, type);
  }
  sum_losses(p, client, loss, shared.loss_sum);
}

template <class T>
Kernel<Parameters<T>> cross_entropy_of(int64_t classes) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    return Kernel<Parameters<T>>{cross_entropy_kernel<Team>, tile.lanes, Team::kMaxThreads};
  });
}

template Kernel<Parameters<float>> cross_entropy_of<float>(int64_t);
template Kernel<Parameters<double>> cross_entropy_of<double>(int64_t);

}  // namespace fedasd::cuda
