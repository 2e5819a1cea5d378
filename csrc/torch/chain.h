// The op of a cohort's local training: schema and arguments, and its tensors as pointers and sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "../chain/problem.h"

// `layers` has five numbers for each: in, out, the places of weight and bias (-1: none) in the vector, and the
// activation (chain/problem.h).  sizes, epochs and decays: one a client.  `steps`: the largest number of a client's
// steps, the width of losses and norms.
#define FEDASD_TRAIN_SCHEMA                                                                                        \
  "(Tensor start, Tensor inputs, Tensor targets, Tensor sizes, Tensor epochs, Tensor orders, Tensor decays, "      \
  "Tensor? linear, int[] layers, int batch_size, int steps, float lr, float quadratic, float? clip_norm, "         \
  "float momentum, float rho, float rho_epsilon, float asd_weight, float temperature, float entropy_temperature, " \
  "float entropy_power, float prior_power, str weighting, str divergence, bool not_true) -> (Tensor ends, "        \
  "Tensor losses, Tensor norms, Tensor distances)"
#define FEDASD_TRAIN_PARAMETERS                                                                                     \
  const at::Tensor &start, const at::Tensor &inputs, const at::Tensor &targets, const at::Tensor &sizes,            \
      const at::Tensor &epochs, const at::Tensor &orders, const at::Tensor &decays,                                 \
      const std::optional<at::Tensor>&linear, at::IntArrayRef layers, int64_t batch_size, int64_t steps, double lr, \
      double quadratic, std::optional<double> clip_norm, double momentum, double rho, double rho_epsilon,           \
      double asd_weight, double temperature, double entropy_temperature, double entropy_power, double prior_power,  \
      std::string_view weighting, std::string_view divergence, bool not_true
#define FEDASD_TRAIN_ARGUMENTS                                                                                         \
  start, inputs, targets, sizes, epochs, orders, decays, linear, layers, batch_size, steps, lr, quadratic, clip_norm,  \
      momentum, rho, rho_epsilon, asd_weight, temperature, entropy_temperature, entropy_power, prior_power, weighting, \
      divergence, not_true

namespace fedasd {

using TrainedClients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // ends, losses, norms, distances

// The registered op, for op_handle.h.
struct TrainClientsOp {
  static constexpr const char* name = "fedasd::train_clients";
  using Signature = TrainedClients(FEDASD_TRAIN_PARAMETERS);
};

// A checked problem and the tensors that it writes.
struct Training {
  ChainTraining problem;
  at::Tensor ends, losses, norms, distances;
};
Training read_training(FEDASD_TRAIN_PARAMETERS);

// Why a GPU whose blocks have `limit` bytes of shared memory cannot train clients of this network; empty: it can.
std::string why_not_trained_on_gpu(at::IntArrayRef layers, int64_t batch_size, bool f64, int64_t limit);

// Asked now and then by calls of the op that this thread makes: true ends them with an error.
std::function<bool()>& training_stop();

}  // namespace fedasd
