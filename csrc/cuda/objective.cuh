// The ASD objective with a teacher: loss and gradient of a client's rows.  The same algorithm for a team of lanes
// (warp_rows.cuh) and for a block as a team (block_rows.cuh).
#pragma once

#include "../asd/formulas.h"
#include "batch.cuh"
#include "elements.cuh"
#include "kernels.cuh"
#include "loss_sum.cuh"
#include "tiles.cuh"

namespace fedasd::cuda {

// What is known of a row when its classes are gone through.
template <class T>
struct RowConstants {
  T shift = 0, inverse = 1;
  T centre = 0, mean = 0;        // mean of x in two parts: centre + mean
  T asd = 0;                     // lambda alpha / tau
  T ce_scale = 0, ce_true = 0;   // cross-entropy gradient: ce_scale exp(z') + ce_true [c == y]
  T t_shift = 0, t_inverse = 1;  // s = exp((v - t_shift) t_scale) t_inverse, log s = (v - t_shift) t_inv_tau + const
  T t_scale = T(kLog2E), t_inv_tau = 1;
};

// The student's rows.
template <class Team, bool cached, bool kl>
struct StudentRow {
  using T = typename Team::T;
  Team& team;
  const Parameters<T>& p;
  const Options& o;
  bool logarithms;  // the teacher's values are logarithms up to a constant, not probabilities
  RowConstants<T> k;

  __device__ __forceinline__ StudentRow(Team& team_, const Parameters<T>& p_)
      : team(team_), p(p_), o(p_.problem.options),
        logarithms(!cached || p_.problem.teacher_rows == TeacherRows::log_probabilities) {}

  __device__ __forceinline__ T student_exp(T z) const { return exp_2((z - k.shift) * p.scales.at_tau); }
  __device__ __forceinline__ T student_log(T z) const { return rounded_product(z - k.shift, p.scales.inv_tau); }
  __device__ __forceinline__ T student_probability(T z) const { return rounded_product(student_exp(z), k.inverse); }
  // s times the teacher's sum (1 for a cached row).
  __device__ __forceinline__ T teacher_exp(T v) const { return logarithms ? exp_2((v - k.t_shift) * k.t_scale) : v; }
  __device__ __forceinline__ T teacher_log(T v) const {
    return logarithms ? rounded_product(v - k.t_shift, k.t_inv_tau) : log_e(v);
  }
  __device__ __forceinline__ T teacher_probability(T e) const { return cached ? e : rounded_product(e, k.t_inverse); }

  // What the row's mean is taken of: log(q/s) up to a constant, or log(q/m); 0 where q is.
  __device__ __forceinline__ T centred(T z, T q, T v) const {
    if (q == 0) return 0;
    if (o.divergence == Divergence::reverse_kl) return student_log(z) - teacher_log(v) - k.centre;
    return log_e(2 * q / (teacher_probability(teacher_exp(v)) + q));
  }
  __device__ __forceinline__ T mean_over_classes() {
    T total = 0;
    team.each([&](T z, T v) {
      const T q = student_probability(z);
      total += q * centred(z, q, v);
    });
    return team.sum(total);
  }

  // The row's part of the client's loss; writes its gradient.
  __device__ __forceinline__ double run(int64_t client, int row, const BatchRow& at, T alpha, T valid, T t_shift,
                                        T t_sum) {
    const Problem& problem = p.problem;
    const DType type = problem.student.first.type;
    // Not a function of its own: nvcc 13.0 then takes up to 42 registers more, and fewer warps are resident.
    void* gradient = nullptr;
    if (problem.gradient)
      gradient =
          static_cast<char*>(problem.gradient) + (client * problem.batch + row) * problem.classes * size_of(type);
    double loss = 0;
    if (at.label < 0) team.clear(gradient, type);
    else loss = value_and_gradient(client, row, at, alpha, valid, t_shift, t_sum, gradient, type);
    team.store(gradient, type);
    return team.leader() ? loss : 0;
  }

 private:
  __device__ __forceinline__ double value_and_gradient(int64_t client, int row, const BatchRow& at, T alpha, T valid,
                                                       T t_shift, T t_sum, void* gradient, DType type) {
    const Problem& problem = p.problem;
    Softmax<T> s = team.template student_softmax<SoftmaxSums::two>(p.scales.at_tau, p.scales.at_one);
    k = {};
    // The exponentials of a long row are computed again for the gradient: holding on to them as well would
    // take the registers that other warps need.
    k.shift = Team::kLong ? forgotten(s.shift) : s.shift;
    k.inverse = 1 / s.sum;
    k.asd = p.scales.asd_gradient * alpha;
    if (!cached)
      k.t_shift = t_shift, k.t_inverse = 1 / t_sum, k.t_scale = p.scales.at_tau, k.t_inv_tau = p.scales.inv_tau;
    const T own_logit = element<T>(row_of(problem.student.client(client), row), at.label);
    const double ce = o.ce_weight == 0 ? 0 : cross_entropy(s, own_logit, valid);

    T d = 0;  // the divergence
    if constexpr (kl) {
      T cross = 0;
      team.map(gradient, type, [&](T z, T v, int c) {
        // The sum takes s before it is normalised and rounded.
        const T e = teacher_exp(v), x = student_log(z);
        cross += product_or_zero(e, logarithms ? teacher_log(v) - x : -x);
        return forward_kl_gradient(student_probability(z), teacher_probability(e), k.asd) + ce_gradient(z, c, at.label);
      });
      cross = team.sum(cross);
      // log S_z - log S_t as one logarithm: exactly 0 where the sums are equal.
      if constexpr (cached) d = forward_kl(cross, T(problem.cache_constant.at(client, at.teacher_row)), log_e(s.sum));
      else d = forward_kl(cross / t_sum, T(0), log_e(s.sum / t_sum));
    } else {
      T total = mean_over_classes();
      if (o.divergence == Divergence::reverse_kl) {
        // x may be as large as the logits while its deviations are small: a second pass, centred on the
        // first, gives a mean whose error is that of the deviations.
        k.centre = total - total == 0 ? total : T(0);  // inf and NaN stay in the sum
        total = mean_over_classes();
        d = reverse_kl(total + k.centre, T(0), log_e(cached ? s.sum : s.sum / t_sum));
      } else {
        T total_s = 0;
        team.each([&](T z, T v) {
          const T t = teacher_probability(teacher_exp(v));
          total_s += product_or_zero(t, log_e(2 * t / (t + student_probability(z))));
        });
        d = (total + team.sum(total_s)) / 2;
      }
      k.mean = total;
      team.map(gradient, type, [&](T z, T v, int c) {
        const T q = student_probability(z);
        return centred_gradient(q, centred(z, q, v), k.mean, k.asd) + ce_gradient(z, c, at.label);
      });
    }
    if (d < 0) d = 0;  // a divergence is not negative; only rounding makes it so
    return (o.asd_weight == 0 ? 0 : o.asd_weight * double(alpha * d)) + ce;
  }

  // Sets the constants of its gradient; returns its part of the loss.
  __device__ __forceinline__ double cross_entropy(Softmax<T>& s, T own_logit, T valid) {
    const T weight = T(o.ce_weight) / valid;
    T scale = 1, own = 0;
    if (o.not_true) {  // the sums leave the true class out: put it back, on the common maximum
      const T top = larger(s.shift, own_logit);
      scale = exp_2((s.shift - top) * p.scales.at_one);
      own = exp_2((own_logit - top) * p.scales.at_one);
      s.other_sum = s.other_sum * scale + own;
      s.shift = top;
    }
    const T inverse = 1 / s.other_sum;
    k.ce_scale = scale * inverse * weight;
    k.ce_true = (own * inverse - 1) * weight;
    return double(weight * (log_e(s.other_sum) + (s.shift - own_logit)));
  }
  __device__ __forceinline__ T ce_gradient(T z, int c, int label) const {
    if (o.ce_weight == 0) return 0;
    const T u = exp_2((z - k.shift) * p.scales.at_one) * k.ce_scale;
    return c == label ? u + k.ce_true : u;
  }
};

// All of a kernel's shared memory.  Members are not overlaid: none is reused for another purpose.
template <class Team, bool cached>
struct ObjectiveShared {
  typename Team::Shared team;
  typename Weights<typename Team::T, cached>::Shared weights;
  LossSumShared loss_sum;
};

template <class Team, bool cached, bool kl>
__global__ void __launch_bounds__(Team::kMaxThreads, kl ? Team::kMinBlocks : 1)
    objective_kernel(const Parameters<typename Team::T> p) {
  using T = typename Team::T;
  using Shared = ObjectiveShared<Team, cached>;
  FEDASD_SHARED(Shared, shared);
  const Problem& problem = p.problem;
  const Options& o = problem.options;
  Team team(shared.team);
  StudentRow<Team, cached, kl> student_row(team, p);

  // A block works for one client; rows are dealt to the teams of the client's blocks in turn.
  const int64_t client = int(blockIdx.x) / p.blocks_per_client;
  const int batch = int(problem.batch), classes = int(problem.classes);
  const int first = int(blockIdx.x) % p.blocks_per_client * team.teams() + team.index(),
            step = team.teams() * p.blocks_per_client;
  const Matrix student = problem.student.client(client), teacher = problem.teacher.client(client);
  auto load_teacher = [&](const BatchRow& at) {
    const bool logs = student_row.logarithms;
    team.load_teacher(row_of(teacher, at.teacher_row), o.not_true && logs ? at.label : -1, logs ? -kInfinity<T> : T(0));
  };

  int loaded = -1;  // the row whose teacher is in registers
  if constexpr (!cached) {
    if (p.phases != Phases::student) {
      for (int row = first; row < batch; row += step) {
        const BatchRow at = read_row<cached>(problem, client, row);
        if (at.label < 0) continue;
        team.start(row_of(student, row), classes);
        load_teacher(at);
        loaded = row;
        const Softmax<T> s =
            team.template teacher_softmax<SoftmaxSums::two_and_moment>(p.scales.at_tau, p.scales.at_tau_h);
        if (!team.leader()) continue;
        const int64_t i = client * batch + row;
        p.teacher_shift[i] = s.shift;
        p.teacher_sum[i] = s.sum;
        if (o.adaptive) {
          const T log_proportion = read_log_proportion<T>(problem.label_prior, client, at.label);
          p.log_weight[i] = row_log_weight(s, row_of(teacher, row), at.label, log_proportion, p.scales, o.not_true);
        }
      }
    }
    if (p.phases == Phases::teacher) return;
    // Hazard: alpha needs the weight of every row of the client, and this team's row numbers were written
    // by its leader alone.  With one block a client its own barrier is enough; else all blocks of the grid
    // wait, which a cooperative launch guarantees to be running.  After a teacher launch all is there.
    if (p.phases == Phases::both) {
      if (p.blocks_per_client == 1) __syncthreads();
      else cooperative_groups::this_grid().sync();
    }
  }
  const auto& weights = Weights<T, cached>::of_client(p, client, shared.weights);

  double loss = 0;
  // Backwards: the row whose teacher is still in registers comes first.
  const int last = first < batch ? first + (batch - 1 - first) / step * step : -1;
  for (int row = last; row >= 0; row -= step) {
    const BatchRow at = read_row<cached>(problem, client, row);
    team.start(row_of(student, row), classes);
    T alpha = 0, t_shift = 0, t_sum = 1;
    if (at.label >= 0) {
      alpha = weights.alpha(read_log_weight<T, cached>(p, client, row, at));
      if constexpr (!cached)
        t_shift = p.teacher_shift[client * batch + row], t_sum = p.teacher_sum[client * batch + row];
      if (row != loaded) load_teacher(at);
      team.load_student(row_of(student, row), o.not_true ? at.label : -1, -kInfinity<T>);
    }
    loss += student_row.run(client, row, at, alpha, weights.valid, t_shift, t_sum);
  }
  sum_losses(p, client, loss, shared.loss_sum);
}

template <class T, bool cached>
Kernel<Parameters<T>> objective_of(int64_t classes, bool kl) {
  return with_tile(T{}, classes, [&](auto tile) {
    using Team = typename decltype(tile)::Team;
    const auto run = kl ? objective_kernel<Team, cached, true> : objective_kernel<Team, cached, false>;
    return Kernel<Parameters<T>>{run, tile.lanes, Team::kMaxThreads};
  });
}

}  // namespace fedasd::cuda
