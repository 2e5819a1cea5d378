// Turns the tensors of the loss ops into the pointers and strides that every backend takes, and allocates the outputs.
#pragma once

#include <ATen/ATen.h>

#include "../asd/problem.h"
#include "ops.h"

namespace fedasd {

// A problem with the tensors it points into.
struct Objective {
  Problem problem;
  at::Tensor label_prior;  // half types widened
  at::Tensor loss, gradient;
};
struct CacheObjective {
  CacheProblem problem;
  at::Tensor label_prior;
  at::Tensor rows, constant, log_weight;
};

// Check everything that can be checked without looking at a value, and allocate the outputs.
Objective read_objective(FEDASD_OBJECTIVE_PARAMETERS, bool with_gradient);
CacheObjective read_cache(FEDASD_CACHE_PARAMETERS);

}  // namespace fedasd
