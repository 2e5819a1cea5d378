// Arguments of the local training of a cohort, for every backend: plain pointers and sizes.  No torch, no CUDA headers.
//
// The network is a chain of linear layers with an activation behind each.  All clients start from the same parameters;
// each trains on its own samples, over all of its epochs, without seeing the others.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "../asd/options.h"
#include "../update/problem.h"

namespace fedasd {

enum class Activation { none, relu, tanh, gelu, gelu_tanh, silu };
constexpr int kActivations = 6;

// weight [out, in] and bias [out] lie at these places of a client's parameters; bias < 0: none.
struct ChainLayer {
  int64_t in = 0, out = 0, weight = 0, bias = -1;
  Activation activation = Activation::none;
};

struct ChainTraining {
  DType type = DType::f32;  // f32 or f64, of all arrays
  std::vector<ChainLayer> layers;
  int64_t clients = 0, size = 0;  // size: parameters of a client
  const void* start = nullptr;    // [size]

  // Client k has sizes[k] samples, which lie behind those of the clients before it, and trains epochs[k] times over
  // them; its orders are epochs[k] permutations of 0 .. sizes[k] - 1, behind those of the clients before it.
  const void* inputs = nullptr;  // [samples, layers[0].in]
  const int64_t *targets = nullptr, *sizes = nullptr, *epochs = nullptr, *orders = nullptr;
  int64_t samples = 0, ordered = 0;  // of all clients: samples, and numbers in orders
  int64_t batch_size = 1;

  // The local step (update/problem.h), and the ascent before it if rho is not 0.
  double lr = 0, quadratic = 0, momentum = 0, clip = 0, rho = 0, rho_epsilon = 0;
  PerClient decay;
  ConstRows linear;  // [clients, size]; null: none

  Options options;  // asd_weight 0: no teacher
  bool distils() const { return options.asd_weight != 0; }

  Rows ends;                    // [clients, size]
  Losses losses;                // [clients, steps], 0 where a client has no step
  double* norms = nullptr;      // [clients, steps] ||u||; null: not wanted
  double* distances = nullptr;  // [clients] ||end - start||
  int64_t steps = 0;            // the largest number of steps of a client

  // Asked now and then, by the calling thread only; true ends the call, and the results are void.
  std::function<bool()> stop;
};

inline int64_t steps_of(const ChainTraining& p, int64_t k) {
  return p.epochs[k] * ((p.sizes[k] + p.batch_size - 1) / p.batch_size);
}

}  // namespace fedasd
