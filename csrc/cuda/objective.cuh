// The ASD objective with a teacher: loss and gradient of all clients' rows in one launch.
#pragma once

#include "batch.cuh"
#include "kernels.cuh"
#include "loss_sum.cuh"
#include "student_row.cuh"
#include "tiles.cuh"
#include "weights.cuh"

namespace fedasd::cuda {

// All of a kernel's shared memory.  Members are not overlaid: none is reused for another purpose.
template <class Team, bool cached>
struct ObjectiveShared {
  typename Team::Shared team;
  typename Weights<typename Team::T, cached>::Shared weights;
  LossSumShared loss_sum;
};

// A client's rows, dealt to the teams of its blocks in turn.  Labels are read a row ahead; all loads of a row are
// issued before the first of them is waited for.
template <class Team, bool cached, Rows kRows>
struct ObjectiveRows {
  using T = typename Team::T;
  using Numbers = RowNumbers<T, cached>;
  Team& team;
  const Parameters<T>& p;
  const Problem& problem;
  const RowsOfBlock& own;
  int64_t client;
  int batch, first, step, last;
  BatchEntry entry{};  // of the row that comes next
  int loaded = -1;     // the last row, if its teacher is in registers

  __device__ __forceinline__ ObjectiveRows(Team& team_, const Parameters<T>& p_, const RowsOfBlock& own_)
      : team(team_), p(p_), problem(p_.problem), own(own_), client(own_.client), batch(int(problem.batch)) {
    first = own.first * team.teams() + team.index();
    step = team.teams() * own.step;
    last = first < batch ? first + (batch - 1 - first) / step * step : -1;
  }

  // The row that load_teacher() or load_row() is called for next.
  __device__ __forceinline__ void announce(int row) {
    if (row >= 0 && row < batch) entry = fetch_entry<cached>(problem, client, row);
  }
  __device__ __forceinline__ RowView student_row(int row) const { return row_in(problem.student, row); }
  __device__ __forceinline__ RowView teacher_row(int row) const { return row_in(problem.teacher, row); }
  __device__ __forceinline__ RowView row_in(const Logits& logits, int row) const {
    Matrix m = logits.client(client);
    if (kRows != Rows::any) m.type = type_of(kRows, m.type), m.col_stride = 1;
    return row_of(m, row);
  }
  __device__ __forceinline__ bool not_true() const { return kRows == Rows::any && problem.options.not_true; }
  __device__ __forceinline__ Source<T> teacher_source(const BatchRow& at) const {
    const bool logs = !cached || (kRows == Rows::any && problem.teacher_rows == TeacherRows::log_probabilities);
    const int excluded = not_true() && logs ? at.label : -1;
    return {teacher_row(at.teacher_row), excluded, logs ? -kInfinity<T> : T(0)};
  }

  // A raw teacher's rows: their softmaxes, and the sum of the weights in the teams' leaders.  A row in parts has one
  // leader, in the first of its blocks.
  __device__ __forceinline__ WeightSum<T, cached> teacher_rows() {
    WeightSum<T, cached> sum;
    const Options& o = problem.options;
    announce(first);
    for (int row = first; row < batch; row += step) {
      const BatchRow at = checked_row<cached>(problem, entry);
      announce(row + step);
      if (at.label < 0) continue;
      T proportion = 1, own_logit = 0;
      if (o.adaptive) proportion = T(problem.label_prior.at(client, at.label));
      if (not_true()) own_logit = element<T>(teacher_row(row), at.label);
      team.start(student_row(row), int(problem.classes));
      team.load_teacher(teacher_source(at));
      loaded = row;
      const Softmax<T> s =
          team.template teacher_softmax<SoftmaxSums::two_and_moment>(p.scales.at_tau, p.scales.at_tau_h);
      if (!team.leader()) continue;
      const int64_t i = client * batch + row;
      T log_weight = 0;
      if (o.adaptive)
        log_weight = row_log_weight(s, own_logit, checked_log_proportion(proportion), p.scales, not_true());
      p.teacher_shift[i] = s.shift;
      p.teacher_sum[i] = s.sum;
      p.log_weight[i] = log_weight;
      sum.add(log_weight);
    }
    if (loaded != last) loaded = -1;
    return sum;
  }

  // Loads a row, student and teacher; returns its label (-1: ignored, and nothing was loaded).
  __device__ __forceinline__ int load_row(int row, Numbers& numbers) {
    const BatchRow at = checked_row<cached>(problem, entry);
    announce(row - step);
    const RowView logits = student_row(row);
    team.start(logits, int(problem.classes));
    if (at.label < 0) return -1;
    if constexpr (cached) {
      if (problem.options.adaptive) numbers.log_weight = problem.cache_log_weight.at(client, at.teacher_row);
      numbers.constant = problem.cache_constant.at(client, at.teacher_row);
      numbers.cache_label = problem.cache_targets.at(client, at.teacher_row);
    } else {
      const int64_t i = client * batch + row;
      numbers.log_weight = p.log_weight[i], numbers.t_shift = p.teacher_shift[i], numbers.t_sum = p.teacher_sum[i];
    }
    numbers.own_logit = element<T>(logits, at.label);
    const Source<T> source{logits, not_true() ? at.label : -1, -kInfinity<T>};
    if (!cached && row == loaded) team.load_student(source);
    else team.load_both(source, teacher_source(at));
    FEDASD_DEVICE_ASSERT((!cached || numbers.cache_label == at.label) &&
                         "target equals the label the cache was built with");
    return at.label;
  }
};

// Blocks that a multiprocessor holds at least: fewer registers for each.  The other divergences would spill then, and
// so would long rows of any type and some rows with a raw teacher.
template <class Team, bool cached, bool kl, Rows kRows>
constexpr int kMinBlocks = !kl || (kRows == Rows::any && Team::kOfBlock) ? 1
                           : cached                                      ? Team::kMinBlocks
                           : kRows == Rows::any                          ? Team::kRawAnyMinBlocks
                                                                         : Team::kRawMinBlocks;

template <class Team, bool cached, bool kl, Rows kRows>
__global__ void __launch_bounds__(Team::kMaxThreads, kMinBlocks<Team, cached, kl, kRows>)
    objective_kernel(const Parameters<typename Team::T> p) {
  using T = typename Team::T;
  using Shared = ObjectiveShared<Team, cached>;
  using Alpha = Weights<T, cached>;
  FEDASD_SHARED(Shared, shared);
  const RowsOfBlock own(p);
  Team team(shared.team, own.parts, type_of(kRows, DType::f32));
  ObjectiveRows<Team, cached, kRows> rows(team, p, own);

  // The sum of the weights, of this block's rows or (cached, not published) of all rows of the client.
  typename Alpha::Sum sum;
  if constexpr (cached) {
    rows.announce(rows.last);
    const int blocks = p.publish_sums ? p.blocks_per_client : 1, block = p.publish_sums ? own.block : 0;
    const int threads = int(blockDim.x);
    if (p.phases != Phases::rows)
      add_cached_weights(sum, p.problem, rows.client, block * threads + int(threadIdx.x), blocks * threads);
  } else {
    if (p.phases != Phases::rows) sum = rows.teacher_rows();
    rows.announce(rows.last);
  }
  if (p.phases != Phases::rows) sum = Alpha::of_block(sum, shared.weights);
  if (p.publish_sums) {
    if (p.phases != Phases::rows) Alpha::publish(p, sum);
    if (p.phases == Phases::weights) return;
    // Hazard: alpha needs the published sums of all blocks of the client.  All blocks of the grid wait, which a
    // cooperative launch guarantees to be running; after a launch of its own for the weights all is there.
    if (p.phases == Phases::both) cooperative_groups::this_grid().sync();
    sum = Alpha::of_published(p, rows.client, shared.weights);
  }
  // Its barrier also stands between a team's leader, who wrote the numbers of a raw teacher's row, and the lanes that
  // read them.
  const auto& weights = Alpha::normalised(p.problem, rows.client, sum, shared.weights);

  StudentRow<Team, cached, kl, kRows> student_row(team, p);
  double loss = 0;
  // Backwards: the row whose teacher is still in registers comes first.
  for (int row = rows.last; row >= 0; row -= rows.step) {
    RowNumbers<T, cached> numbers;
    const int label = rows.load_row(row, numbers);
    const T alpha = label < 0 ? T(0) : weights.alpha(numbers.log_weight);
    loss += student_row.run(rows.client, row, label, alpha, weights.valid, numbers);
  }
  sum_losses(p, rows.client, loss, shared.loss_sum);
}

template <class T, bool cached>
Kernel<Parameters<T>> objective_of(int64_t classes, bool kl, Rows rows) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    auto run = kl ? objective_kernel<Team, cached, true, Rows::any>
                  : objective_kernel<typename Team::Narrow, cached, false, Rows::any>;
    if constexpr (std::is_same_v<T, float>) {
      if (kl && rows == Rows::f32) run = objective_kernel<Team, cached, true, Rows::f32>;
      // Short rows of bf16 are bound by other things than their instructions.
      if constexpr (Team::kOfBlock) {
        if (kl && rows == Rows::bf16) run = objective_kernel<Team, cached, true, Rows::bf16>;
      }
    }
    return Kernel<Parameters<T>>{run, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
