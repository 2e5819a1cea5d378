// The arithmetic of the client update, written once for every backend.  `V` is a float, a double, or a SIMD vector of
// them; `T` is its element.
#pragma once

#include "../asd/host_device.h"

namespace fedasd {

// How much of u is left: the rule of torch.nn.utils.clip_grad_norm_.  A NaN stays one.
FEDASD_HD double clip_factor(double norm, double clip) {
  const double factor = clip / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}
FEDASD_HD double ascent_factor(double norm, double rho, double epsilon) { return rho / (norm + epsilon); }

// u without its linear part.
template <class V, class T>
FEDASD_HD V with_quadratic(V g, V w, T quadratic) {
  return g + w * quadratic;
}
// d without momentum.
template <class V, class T>
FEDASD_HD V direction(V u, V w, T factor, T decay) {
  return u * factor + w * decay;
}
template <class V, class T>
FEDASD_HD V with_momentum(V velocity, V d, T momentum) {
  return velocity * momentum + d;
}
template <class V, class T>
FEDASD_HD V moved(V w, V d, T length) {
  return w + d * length;
}

}  // namespace fedasd
