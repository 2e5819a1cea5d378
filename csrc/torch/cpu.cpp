// The ops on CPU tensors: csrc/cpu/asd.h on their memory.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "../cpu/asd.h"
#include "problem.h"

namespace fedasd {
namespace {

cpu::Parallel parallel() {
  cpu::Parallel p;
  p.threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  p.run = [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) { at::parallel_for(0, n, grain, f); };
  return p;
}

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

}  // namespace

TORCH_LIBRARY_IMPL(fedasd, CPU, m) {
  m.impl("asd_objective", asd_objective);
  m.impl("asd_loss_and_grad", asd_loss_and_grad);
  m.impl("teacher_cache", teacher_cache);
}

}  // namespace fedasd
