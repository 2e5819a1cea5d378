// The ops on CPU tensors: csrc/cpu/asd.h, update.h and chain.h on their memory.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "../cpu/asd.h"
#include "../cpu/chain.h"
#include "../cpu/update.h"
#include "chain.h"
#include "parallel.h"
#include "problem.h"
#include "update.h"

namespace fedasd {
namespace {

template <class F>
void as_value_error(F f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor asd_objective(FEDASD_OBJECTIVE_PARAMETERS) {
  Objective o = read_objective(FEDASD_OBJECTIVE_ARGUMENTS, false);
  as_value_error([&] { cpu::loss_and_gradient(o.problem, parallel()); });
  return std::move(o.loss);
}

LossAndGrad asd_loss_and_grad(FEDASD_OBJECTIVE_PARAMETERS) {
  Objective o = read_objective(FEDASD_OBJECTIVE_ARGUMENTS, true);
  as_value_error([&] { cpu::loss_and_gradient(o.problem, parallel()); });
  return {std::move(o.loss), std::move(o.gradient)};
}

CacheTensors teacher_cache(FEDASD_CACHE_PARAMETERS) {
  CacheObjective cache = read_cache(FEDASD_CACHE_ARGUMENTS);
  as_value_error([&] { cpu::build_cache(cache.problem, parallel()); });
  return {std::move(cache.rows), std::move(cache.constant), std::move(cache.log_weight)};
}

void local_step(FEDASD_STEP_PARAMETERS) {
  const LocalStep p = read_step(FEDASD_STEP_ARGUMENTS);
  for (int64_t k = 0; k < p.clients; ++k) {
    TORCH_CHECK_VALUE(p.lr.at(k) >= 0 && std::isfinite(p.lr.at(k)), "lr[", k, "] = ", p.lr.at(k),
                      "; expected a positive number, or 0 for a client that has finished");
    TORCH_CHECK_VALUE(std::isfinite(p.decay.at(k)), "decay[", k, "] = ", p.decay.at(k), "; expected a finite number");
  }
  cpu::local_step(p, parallel());
}

void ascend(FEDASD_ASCEND_PARAMETERS) { cpu::ascend(read_ascent(FEDASD_ASCEND_ARGUMENTS), parallel()); }

void accumulate(FEDASD_ACCUMULATE_PARAMETERS) {
  Scaled scaled;
  read_accumulation(FEDASD_ACCUMULATE_ARGUMENTS, scaled);
  cpu::accumulate(scaled.problem, parallel());
}

TrainedClients train_clients(FEDASD_TRAIN_PARAMETERS) {
  Training training = read_training(FEDASD_TRAIN_ARGUMENTS);
  training.problem.stop = training_stop();
  bool done = true;
  as_value_error([&] { done = cpu::train_clients(training.problem, parallel()); });
  TORCH_CHECK(done, "stopped");
  return {std::move(training.ends), std::move(training.losses), std::move(training.norms),
          std::move(training.distances)};
}

}  // namespace

TORCH_LIBRARY_IMPL(fedasd, CPU, m) {
  m.impl("asd_objective", TORCH_FN(asd_objective));
  m.impl("asd_loss_and_grad", TORCH_FN(asd_loss_and_grad));
  m.impl("teacher_cache", TORCH_FN(teacher_cache));
  m.impl("local_step_", TORCH_FN(local_step));
  m.impl("ascend_", TORCH_FN(ascend));
  m.impl("accumulate_", TORCH_FN(accumulate));
  m.impl("train_clients", TORCH_FN(train_clients));
}

}  // namespace fedasd
