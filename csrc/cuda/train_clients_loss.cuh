// The loss of a batch and its gradient, and the teacher of a client: a warp for each row, which lies in shared memory.
// The row mathematics is that of the loss's own kernels.
#pragma once

#include "batch.cuh"
#include "student_row.cuh"
#include "teacher_row.cuh"
#include "train_clients_block.cuh"
#include "weights.cuh"

namespace fedasd::cuda {

// A warp as the team for one row, with the interface of WarpTeam: nothing is kept in registers, so any number of
// classes will do.
template <class T_>
struct SharedRowTeam {
  using T = T_;
  static constexpr bool kLong = true;

  const T* logits;         // shared
  const T* probabilities;  // the teacher's, or null
  T* out;                  // the logits' gradient (shared), or where the teacher's probabilities go
  int classes, excluded;   // excluded: the class that counts as -inf; -1: none
  bool slopes = false;     // `out` holds the derivatives of an activation behind the logits

  __device__ __forceinline__ int lane() const { return int(threadIdx.x) % kWarp; }
  __device__ __forceinline__ bool leader() const { return lane() == 0; }
  __device__ __forceinline__ T sum(T x) { return group_reduce<kWarp>(~0u, x, Add{}); }

  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> student_softmax(T scale, T other_scale) {
    Softmax<T> s;
    for (int c = lane(); c < classes; c += kWarp) s.shift = larger(s.shift, student(c));
    s.shift = group_reduce<kWarp>(~0u, s.shift, Larger{});
    for (int c = lane(); c < classes; c += kWarp) s.template add<sums>(student(c), scale, other_scale);
    s.sum = sum(s.sum);
    if constexpr (sums != SoftmaxSums::one) s.other_sum = sum(s.other_sum);
    if constexpr (sums == SoftmaxSums::two_and_moment) s.other_moment = sum(s.other_moment);
    return s;
  }
  template <class F>
  __device__ __forceinline__ void each(F f) {
    for (int c = lane(); c < classes; c += kWarp) f(student(c), probabilities[c]);
  }
  __device__ __forceinline__ T shift_student(T shift) const { return shift; }  // the logits stay as they are
  template <class F>
  __device__ __forceinline__ void map(void*, DType, int label, T own, F f) {
    for (int c = lane(); c < classes; c += kWarp) write(c, with_own(f(student(c), probabilities[c]), c == label, own));
  }
  template <class F>
  __device__ __forceinline__ void map_student(void*, DType, int label, T own, F f) {
    for (int c = lane(); c < classes; c += kWarp) write(c, with_own(f(student(c)), c == label, own));
  }
  __device__ __forceinline__ void clear(void*, DType) {
    for (int c = lane(); c < classes; c += kWarp) out[c] = 0;
  }
  __device__ __forceinline__ void store(void*, DType) {}

 private:
  __device__ __forceinline__ T student(int c) const { return c == excluded ? -kInfinity<T> : logits[c]; }
  static __device__ __forceinline__ T with_own(T x, bool at_label, T own) { return at_label ? x + own : x; }
  __device__ __forceinline__ void write(int c, T x) { out[c] = slopes ? product_or_zero(out[c], x) : x; }
};

// The global model's outputs on `count` samples from `first` on, whose logits are there.
template <class T>
__device__ __forceinline__ void build_teacher(const ClientBlock<T>& b, int first, int count) {
  const Options& o = b.p.loss.problem.options;
  for (int r = b.warp; r < count; r += b.warps) {
    const int64_t i = b.first_sample + first + r;
    const int label = b.labels[r];
    const T* const logits = b.input(b.p.layout.depth, r);
    SharedRowTeam<T> team{logits, nullptr, b.p.teacher + i * b.classes(), b.classes(), o.not_true ? label : -1};
    if (label < 0) {
      team.clear(nullptr, {});
      if (team.leader()) b.p.teacher_constant[i] = b.p.teacher_log_weight[i] = 0;
      continue;
    }
    int same = 0;  // samples of this label
    for (int j = b.lane; j < b.n; j += kWarp) same += b.p.targets[b.first_sample + j] == label;
    same = group_reduce<kWarp>(~0u, same, Add{});
    constexpr DType type = sizeof(T) == sizeof(double) ? DType::f64 : DType::f32;
    const CachedRow<T> row = cached_row(team, nullptr, CacheRows{nullptr, type, false}, b.p.loss.scales);
    if (!team.leader()) continue;
    b.p.teacher_constant[i] = row.constant;
    b.p.teacher_log_weight[i] =
        row_log_weight(row.softmax, logits[label], log_e(T(same) / T(b.n)), b.p.loss.scales, o.not_true);
  }
  // Hazard (write after read): the next batch takes the place of labels that slow warps still read.  Also read after
  // write: a step reads the teacher's rows that other warps wrote.
  __syncthreads();
}

// What normalises the weights of a batch.  Every warp adds them up for itself, which needs no barrier.
template <class T>
struct BatchWeights {
  double top = -kInfinity<double>;
  T sum = 0;
  int valid = 0;

  __device__ __forceinline__ T alpha(double log_weight) const {
    return WeightSum<T, true>::exp_of(log_weight - top) / sum;
  }
};
template <class T>
__device__ __forceinline__ double log_weight_of(const ClientBlock<T>& b, int row) {
  return b.p.loss.problem.options.adaptive ? b.p.teacher_log_weight[b.first_sample + b.rows[row]] : 0;
}
template <class T>
__device__ __forceinline__ BatchWeights<T> batch_weights(const ClientBlock<T>& b, int count) {
  WeightSum<T, true> own;
  BatchWeights<T> all;
  for (int r = b.lane; r < count; r += kWarp) {
    if (b.labels[r] < 0) continue;
    ++all.valid;
    if (b.p.teacher) own.add(log_weight_of(b, r));
  }
  all.valid = group_reduce<kWarp>(~0u, all.valid, Add{});
  if (!b.p.teacher || all.valid == 0) return all;
  all.top = group_reduce<kWarp>(~0u, own.top, Larger{});
  all.sum = group_reduce<kWarp>(~0u, own.sum * WeightSum<T, true>::exp_of(own.top - all.top), Add{});
  return all;
}

template <class T>
__device__ __forceinline__ double cross_entropy(SharedRowTeam<T>& team, int label, T weight, const Scales<T>& k) {
  const Softmax<T> s = team.template student_softmax<SoftmaxSums::one>(k.at_one, k.at_one);
  const T scale = 1 / s.sum * weight;
  team.map_student(nullptr, {}, label, -weight, [&](T z) { return exp_2((z - s.shift) * k.at_one) * scale; });
  return double(weight * (log_e(s.sum) + (s.shift - team.logits[label])));
}

// This thread's part of the loss of the batch whose logits are there; leaves the gradient of the last layer's outputs.
template <class T>
__device__ __forceinline__ double differentiate_loss(const ClientBlock<T>& b, int count) {
  const Parameters<T>& loss = b.p.loss;
  const Options& o = loss.problem.options;
  const int last = b.p.layout.depth - 1;
  const BatchWeights<T> weights = batch_weights(b, count);
  double own = 0;
  for (int r = b.warp; r < count; r += b.warps) {
    const int label = b.labels[r];
    const T* const logits = b.input(last + 1, r);
    SharedRowTeam<T> team{logits,      nullptr, b.gradient(last, r),
                          b.classes(), -1,      b.layer(last).activation != Activation::none};
    if (label < 0) {
      team.clear(nullptr, {});
    } else if (!b.p.teacher) {
      const double part = cross_entropy(team, label, 1 / T(weights.valid), loss.scales);
      if (team.leader()) own += part;
    } else {
      const int64_t i = b.first_sample + b.rows[r];
      team.probabilities = b.p.teacher + i * b.classes();
      team.excluded = o.not_true ? label : -1;
      RowNumbers<T, true> numbers;
      numbers.constant = b.p.teacher_constant[i];
      numbers.own_logit = logits[label];
      const T alpha = weights.alpha(log_weight_of(b, r)), valid = T(weights.valid);
      if (o.divergence == Divergence::kl)
        own += StudentRow<SharedRowTeam<T>, true, true, Rows::any>(team, loss).run(0, 0, label, alpha, valid, numbers);
      else
        own += StudentRow<SharedRowTeam<T>, true, false, Rows::any>(team, loss).run(0, 0, label, alpha, valid, numbers);
    }
  }
  // Hazard (read after write): the layers below read the gradients of all rows.
  __syncthreads();
  return own;
}

}  // namespace fedasd::cuda
