// The ops on CUDA tensors: csrc/cuda/api.h on their memory.  Compiled only where CUDA is built in (setup.py).
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "../cuda/api.h"
#include "chain.h"
#include "problem.h"
#include "update.h"

namespace fedasd {
namespace {

// The kernel's scratch memory.  torch's allocator keeps it for this stream until the launch is over, also
// when the tensor goes out of scope before that, and takes it from the graph's pool during capture.
struct Workspace {
  at::TensorOptions options;
  at::Tensor memory;
  void* operator()(size_t bytes) {
    memory = at::empty({int64_t(bytes)}, options.dtype(at::kByte));
    return memory.mutable_data_ptr();
  }
};

// Reading the arguments comes first: it refuses tensors of different devices, and only then is there a device.
void run(const Objective& o) {
  const c10::cuda::CUDAGuard device(o.loss.device());
  Workspace workspace{o.loss.options(), {}};
  cuda::loss_and_gradient(o.problem, std::ref(workspace), c10::cuda::getCurrentCUDAStream());
}

at::Tensor asd_objective(FEDASD_OBJECTIVE_PARAMETERS) {
  Objective o = read_objective(FEDASD_OBJECTIVE_ARGUMENTS, false);
  run(o);
  return std::move(o.loss);
}

LossAndGrad asd_loss_and_grad(FEDASD_OBJECTIVE_PARAMETERS) {
  Objective o = read_objective(FEDASD_OBJECTIVE_ARGUMENTS, true);
  run(o);
  return {std::move(o.loss), std::move(o.gradient)};
}

CacheTensors teacher_cache(FEDASD_CACHE_PARAMETERS) {
  CacheObjective cache = read_cache(FEDASD_CACHE_ARGUMENTS);
  const c10::cuda::CUDAGuard device(cache.rows.device());
  cuda::build_cache(cache.problem, c10::cuda::getCurrentCUDAStream());
  return {std::move(cache.rows), std::move(cache.constant), std::move(cache.log_weight)};
}

void local_step(FEDASD_STEP_PARAMETERS) {
  const LocalStep p = read_step(FEDASD_STEP_ARGUMENTS);
  const c10::cuda::CUDAGuard device(w.device());
  Workspace workspace{w.options(), {}};
  cuda::local_step(p, std::ref(workspace), c10::cuda::getCurrentCUDAStream());
}

void ascend(FEDASD_ASCEND_PARAMETERS) {
  const Ascent p = read_ascent(FEDASD_ASCEND_ARGUMENTS);
  const c10::cuda::CUDAGuard device(w.device());
  Workspace workspace{w.options(), {}};
  cuda::ascend(p, std::ref(workspace), c10::cuda::getCurrentCUDAStream());
}

void accumulate(FEDASD_ACCUMULATE_PARAMETERS) {
  Scaled scaled;
  read_accumulation(FEDASD_ACCUMULATE_ARGUMENTS, scaled);
  const c10::cuda::CUDAGuard device(total.device());
  cuda::accumulate(scaled.problem, c10::cuda::getCurrentCUDAStream());
}

TrainedClients train_clients(FEDASD_TRAIN_PARAMETERS) {
  Training training = read_training(FEDASD_TRAIN_ARGUMENTS);
  const c10::cuda::CUDAGuard device(start.device());
  Workspace workspace{start.options(), {}};
  cuda::train_clients(training.problem, std::ref(workspace), c10::cuda::getCurrentCUDAStream());
  return {std::move(training.ends), std::move(training.losses), std::move(training.norms),
          std::move(training.distances)};
}

}  // namespace

TORCH_LIBRARY_IMPL(fedasd, CUDA, m) {
  m.impl("asd_objective", asd_objective);
  m.impl("asd_loss_and_grad", asd_loss_and_grad);
  m.impl("teacher_cache", teacher_cache);
  m.impl("local_step_", local_step);
  m.impl("ascend_", ascend);
  m.impl("accumulate_", accumulate);
  m.impl("train_clients", train_clients);
}

}  // namespace fedasd
