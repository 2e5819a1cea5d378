// The compiled kernels of the loss, and the parameters that a launch passes by value.
#pragma once

#include <cstdint>

#include "../asd/problem.h"
#include "softmax.cuh"

namespace fedasd::cuda {

// The options as the arithmetic wants them, computed once on the host.
template <class T>
struct Scales {
  T inv_tau, tau_h;
  T at_tau, at_tau_h, at_one;  // log2(e) / temperature: exp(x / tau) = 2^(x at_tau)
  T entropy_power, prior_power;
  T asd_gradient;  // lambda / tau (js: half of it)

  explicit Scales(const Options& o)
      : inv_tau(T(1 / o.temperature)), tau_h(T(o.entropy_temperature)), at_tau(T(kLog2E / o.temperature)),
        at_tau_h(T(kLog2E / o.entropy_temperature)), at_one(T(kLog2E)), entropy_power(T(o.entropy_power)),
        prior_power(T(o.prior_power)),
        asd_gradient(T(o.asd_weight / o.temperature * (o.divergence == Divergence::js ? 0.5 : 1.0))) {}
};

// Which half a launch runs: the sum of the weights (and the teacher's softmaxes before it), or the rows that need it.
// `both` needs every block of a client to be running at once where they publish sums.
enum class Phases { both, weights, rows };

template <class T>
struct Parameters {
  Problem problem;
  Scales<T> scales;
  Phases phases = Phases::both;
  int blocks_per_client = 1;
  int parts = 1;              // blocks that share a row; then every block has one row
  bool publish_sums = false;  // of the weights; else every block sums the client's for itself

  // Raw teacher: [clients, batch].
  T* log_weight = nullptr;
  T* teacher_shift = nullptr;
  T* teacher_sum = nullptr;
  // More than one block a client: [clients, blocks_per_client].
  double* weight_sums = nullptr;     // three each
  uint64_t* partial_loss = nullptr;  // two words each, see loss_sum.cuh
  uint64_t* part_words = nullptr;    // of rows in parts: [clients, batch, parts] of kPartWords, see row_parts.cuh
  uint32_t stamp = 0;

  explicit Parameters(const Problem& p) : problem(p), scales(p.options) {}
};

// Which rows a kernel takes: any, or only those of one type with their elements side by side, of student and teacher
// alike, with no class left out and a cache of probabilities.  What is known when it is compiled needs no look.
enum class Rows { any, f32, bf16 };

FEDASD_HD constexpr DType type_of(Rows rows, DType otherwise) {
  return rows == Rows::f32 ? DType::f32 : rows == Rows::bf16 ? DType::bf16 : otherwise;
}

template <class T>
struct CacheParameters {
  CacheProblem problem;
  Scales<T> scales;

  explicit CacheParameters(const CacheProblem& p) : problem(p), scales(p.options) {}
};

// A compiled kernel and how it is launched.
template <class P>
struct Kernel {
  void (*run)(P);
  int lanes;  // threads that share a row; 0: all of the block
  int max_threads;
};

// The kernel for rows of so many classes.  The .cu files hold these for float and double.
template <class T, bool cached>
Kernel<Parameters<T>> objective_of(int64_t classes, bool kl, Rows rows = Rows::any);
template <class T>
Kernel<Parameters<T>> cross_entropy_of(int64_t classes);
template <class T>
Kernel<CacheParameters<T>> build_cache_of(int64_t classes);

}  // namespace fedasd::cuda
