// The hyper-parameters of one ASD objective, shared by every backend.  No torch, no CUDA headers.
#pragma once

#include <cstdint>

namespace fedasd {

enum class Divergence { kl, reverse_kl, js };

struct Options {
  double temperature = 2.0;          // tau
  double entropy_temperature = 1.0;  // tau_h
  double entropy_power = 1.0;        // b_h
  double prior_power = 1.0;          // b_p
  double asd_weight = 1.0;           // lambda
  double ce_weight = 1.0;
  Divergence divergence = Divergence::kl;
  bool adaptive = true;   // false: alpha_i = 1 / (number of valid rows)
  bool not_true = false;  // FedNTD: both softmaxes at tau leave out the true class
  int64_t ignore_index = -100;
};

}  // namespace fedasd
