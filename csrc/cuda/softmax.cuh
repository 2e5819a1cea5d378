// The sums of one softmax, or of two at different temperatures, over logits shifted by their maximum.
#pragma once

#include <limits>

#include "platform.cuh"

namespace fedasd::cuda {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
constexpr double kLog2E = 1.4426950408889634;

// 0 where weight is 0, so that 0 * -inf of a masked class counts as nothing.
template <class T>
__device__ __forceinline__ T product_or_zero(T weight, T x) {
  return weight == 0 ? T(0) : weight * x;
}

// Which sums are taken: of one softmax, of two, or of two with the moment that the second one's entropy needs.
enum class SoftmaxSums { one, two, two_and_moment };

// Scales are log2(e) / tau: exp(x / tau) = 2^(x scale).
template <class T>
struct Softmax {
  T shift = -kInfinity<T>;
  T sum = 0;                          // sum exp(x' / tau)
  T other_sum = 0, other_moment = 0;  // sum exp(x' / tau'), sum exp(x' / tau') x'

  template <SoftmaxSums sums>
  __device__ __forceinline__ void add(T x, T scale, T other_scale) {
    const T shifted = x - shift, e = sums == SoftmaxSums::one ? T(0) : exp_2(shifted * other_scale);
    sum += exp_2(shifted * scale);
    if constexpr (sums != SoftmaxSums::one) other_sum += e;
    if constexpr (sums == SoftmaxSums::two_and_moment)
      if (e != 0) other_moment += e * shifted;  // 0 * -inf of a masked class counts as nothing
  }

  // The same sums over a larger shift.
  template <SoftmaxSums sums>
  __device__ __forceinline__ void raise(T top, T scale, T other_scale) {
    if (top == shift || sum == 0) {  // nothing yet: -inf - -inf must not become NaN
      shift = top;
      return;
    }
    const T rest = shift - top;
    if constexpr (sums != SoftmaxSums::one) {
      const T factor = exp_2(rest * other_scale);
      if constexpr (sums == SoftmaxSums::two_and_moment) other_moment = factor * (other_moment + rest * other_sum);
      other_sum *= factor;
    }
    sum = rounded_product(sum, exp_2(rest * scale));  // as the same sum elsewhere, also where it is added to next
    shift = top;
  }
};

}  // namespace fedasd::cuda
