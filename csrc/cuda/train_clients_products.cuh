// The products of a chain of linear layers on the rows of a batch, all in shared memory.
//
//   forwards         y [batch, out]  = x [batch, in] w^T      w [out, in], as torch has it
//   inputs' gradient dx [batch, in]  = dy [batch, out] w
//
// A thread has one column and up to four rows of it.  A number of the weights then serves that many products, and the
// rows' numbers are the same for all threads of a warp that have the same rows: one access for all of them.  Each
// element is a sum in the order of its terms, so the bits do not depend on how many rows a thread has.
#pragma once

#include <type_traits>

#include "softmax.cuh"
#include "train_clients_block.cuh"

namespace fedasd::cuda {

template <class T>
struct Activated {
  T y, slope;
};

// Long code, which every product would have a copy of: one that is called keeps the kernel small.
template <class T>
__device__ __noinline__ Activated<T> smooth_activation(Activation f, T x) {
  constexpr T kRootHalf = T(0.70710678118654752440), kRoot2OverPi = T(0.79788456080286535588),
              kInverseRoot2Pi = T(0.39894228040143267794), kCubic = T(0.044715);
  switch (f) {
    case Activation::tanh: {
      const T t = tanh(x);
      return {t, 1 - t * t};
    }
    case Activation::silu: {
      const T s = 1 / (1 + exp(-x));
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Activation::gelu: {
      const T half = T(0.5) * (1 + erf(x * kRootHalf));  // the normal distribution at x
      return {x * half, half + x * kInverseRoot2Pi * exp(x * x * T(-0.5))};
    }
    default: {  // gelu_tanh
      const T t = tanh(kRoot2OverPi * (x + kCubic * x * x * x)), slope = kRoot2OverPi * (1 + 3 * kCubic * x * x);
      return {T(0.5) * x * (1 + t), T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * slope};
    }
  }
}
// NaN stays NaN, as in torch.
template <class T>
__device__ __forceinline__ Activated<T> activated(Activation f, T x) {
  if (f == Activation::none) return {x, 1};
  if (f == Activation::relu) return {x <= 0 ? T(0) : x, x <= 0 ? T(0) : T(1)};
  return smooth_activation(f, x);
}

// As few rows a thread as keep all threads busy.
template <class F>
__device__ __forceinline__ void with_rows(int rows, int columns, int threads, F f) {
  if (rows * columns <= threads) f(std::integral_constant<int, 1>{});
  else if ((rows + 1) / 2 * columns <= threads) f(std::integral_constant<int, 2>{});
  else f(std::integral_constant<int, 4>{});
}

// f(column, row, sum) for each element of a product of the rows left(row) and weights(column, k), four from k on.
template <class T, class Left, class Weights, class F>
__device__ __forceinline__ void product(const ClientBlock<T>& b, int rows, int columns, int terms, Left left,
                                        Weights weights, F f) {
  with_rows(rows, columns, b.threads, [&](auto count) {
    constexpr int n = decltype(count)::value;
    const int tasks = (rows + n - 1) / n * columns;
    for (int task = b.thread; task < tasks; task += b.threads) {
      const int group = task / columns, column = task - group * columns;
      const T* row[n];
      T sum[n];
#pragma unroll
      for (int r = 0; r < n; ++r) {
        row[r] = left(min(group * n + r, rows - 1));  // beyond the batch: the last row again, for nothing
        sum[r] = 0;
      }
#pragma unroll 1
      for (int k = 0; k < terms; k += 4) {
        const Four<T> w = weights(column, k);
#pragma unroll
        for (int r = 0; r < n; ++r) {
          const Four<T> x = load_four(row[r] + k);
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[r] += x.at[j] * w.at[j];
        }
      }
#pragma unroll
      for (int r = 0; r < n; ++r)
        if (group * n + r < rows) f(column, group * n + r, sum[r]);
    }
  });
}

// The logits of the rows whose inputs are loaded.  The block's barrier comes after each layer.
template <class T>
__device__ __forceinline__ void forward(const ClientBlock<T>& b, int rows) {
  for (int l = 0; l < b.p.layout.depth; ++l) {
    const TrainLayer layer = b.layer(l);
    product(b, rows, layer.out, layer.in, [&](int row) { return b.input(l, row); }, [&](int column, int k) {
      return load_four(b.memory + layer.weight + column * layer.stride + k);
    }, [&](int column, int row, T sum) {
      if (layer.bias >= 0) sum += b.memory[layer.bias + column];
      const Activated<T> a = activated(layer.activation, sum);
      b.input(l + 1, row)[column] = a.y;
      if (layer.activation != Activation::none) b.gradient(l, row)[column] = a.slope;
    });
    // Hazard (read after write): the next layer, or the loss, reads what all threads wrote.
    __syncthreads();
  }
}

// The gradients of all layers' outputs, from that of the last one's.
template <class T>
__device__ __forceinline__ void backward(const ClientBlock<T>& b, int rows) {
  for (int l = b.p.layout.depth - 1; l > 0; --l) {
    const TrainLayer layer = b.layer(l);
    const bool activates = b.layer(l - 1).activation != Activation::none;
    product(b, rows, layer.in, layer.out, [&](int row) { return b.gradient(l, row); }, [&](int column, int k) {
      const T* const w = b.memory + layer.weight + k * layer.stride + column;
      return Four<T>{{w[0], w[layer.stride], w[2 * layer.stride], w[3 * layer.stride]}};
    }, [&](int column, int row, T sum) {
      T& to = b.gradient(l - 1, row)[column];
      to = activates ? product_or_zero(to, sum) : sum;
    });
    // Hazard (read after write): the layer below, or the update, reads what all threads wrote.  For the update also
    // write after read: it changes weights that slow threads are still multiplying with.
    __syncthreads();
  }
}

}  // namespace fedasd::cuda
