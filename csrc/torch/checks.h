// Argument checks of the loss ops that need no value of a tensor: shapes, types, devices and options.
#pragma once

#include <ATen/ATen.h>

#include "../asd/options.h"
#include "ops.h"

namespace fedasd {

// Sizes after the optional client dimension has been made explicit.
struct Sizes {
  int64_t clients, batch, classes, cached;
  bool has_clients;
};

Options check_options(double asd_weight, double ce_weight, double temperature, double entropy_temperature,
                      double entropy_power, double prior_power, std::string_view weighting, std::string_view divergence,
                      bool not_true, int64_t ignore_index);
Sizes check_objective(FEDASD_OBJECTIVE_PARAMETERS);
Sizes check_cache(FEDASD_CACHE_PARAMETERS);

}  // namespace fedasd
