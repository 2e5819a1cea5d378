// The local step of a client whose parameters are in shared memory: the arithmetic of csrc/update.
//
// The gradient of the parameters is never stored.  A tile of 4 x 4 weights' gradients is a sum over the rows of the
// batch, dw = dy^T x, and a thread computes it in registers whenever it is needed: for the norm, and again for the
// step. That is a product more, and half the shared memory less: more networks fit.  Every element has one thread in
// all passes, so what lies in global memory besides (v, velocity, w before an ascent) is in no need of barriers.
#pragma once

#include "../update/formulas.h"
#include "train_clients_block.cuh"

namespace fedasd::cuda {

// Four neighbouring parameters.
template <class T>
struct ParameterPiece {
  T* w;           // shared
  int64_t place;  // in the client's vector
  int valid;      // how many are parameters; the others are padding, zeros
  Four<T> g;

  // From a row of global memory; padding is 0.
  __device__ __forceinline__ Four<T> read(const T* row) const {
    Four<T> x;
#pragma unroll
    for (int j = 0; j < 4; ++j) x.at[j] = j < valid ? row[place + j] : T(0);
    return x;
  }
  __device__ __forceinline__ void write(T* row, const Four<T>& x) const {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < valid) row[place + j] = x.at[j];
  }
};

// A thread's sum over its parameters of what f(piece, zero) says of each, added in the type of `zero`.  Those of a tile
// are added as T, because a GPU may have few units for double; where that overflows, again as double.
template <class T, int rows, class F>
__device__ __forceinline__ double tile_sum(ParameterPiece<T> (&tile)[rows], int valid, F f) {
  T sum = 0;
#pragma unroll
  for (int j = 0; j < rows; ++j)
    if (j < valid) sum += f(tile[j], T(0));
  if (sizeof(T) == sizeof(double) || sum - sum == 0) return double(sum);
  double wide = 0;
#pragma unroll
  for (int j = 0; j < rows; ++j)
    if (j < valid) wide += f(tile[j], 0.0);
  return wide;
}

// visit(tile, pieces) for each tile of this thread, with the gradients of `count` rows.
template <class T, class Visit>
__device__ __forceinline__ void each_tile(const ClientBlock<T>& b, int count, Visit visit) {
  for (int l = 0; l < b.p.layout.depth; ++l) {
    const TrainLayer layer = b.layer(l);
    const int across = int(fours(layer.in)) / 4, down = int(fours(layer.out)) / 4;
    const int x_stride = int(fours(layer.in)), d_stride = int(fours(layer.out));
    const T *const x = b.memory + layer.input, *const d = b.memory + layer.gradient;
    for (int task = b.thread; task < across * down; task += b.threads) {
      const int o = task / across * 4, i = task % across * 4, valid = min(4, layer.in - i);
      ParameterPiece<T> tile[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        tile[j] = {b.memory + layer.weight + (o + j) * layer.stride + i,
                   layer.weight_place + int64_t(o + j) * layer.in + i,
                   valid,
                   {}};
#pragma unroll 1
      for (int r = 0; r < count; ++r) {
        const Four<T> dy = load_four(d + r * d_stride + o), in = load_four(x + r * x_stride + i);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int k = 0; k < 4; ++k) tile[j].g.at[k] += dy.at[j] * in.at[k];
      }
      visit(tile, min(4, layer.out - o));
    }
    if (layer.bias < 0) continue;
    for (int task = b.thread; task < down; task += b.threads) {
      const int o = task * 4;
      ParameterPiece<T> tile[1] = {{b.memory + layer.bias + o, layer.bias_place + o, min(4, layer.out - o), {}}};
#pragma unroll 1
      for (int r = 0; r < count; ++r) {
        const Four<T> dy = load_four(d + r * d_stride + o);
#pragma unroll
        for (int k = 0; k < 4; ++k) tile[0].g.at[k] += dy.at[k];
      }
      visit(tile, 1);
    }
  }
}

template <class T, class S>
__device__ __forceinline__ S squares(const Four<T>& x, S) {
  S sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) sum += S(x.at[j]) * S(x.at[j]);
  return sum;
}

template <class T>
struct ClientUpdater {
  const ClientBlock<T>& b;
  const T* const linear;
  T *const velocity, *const saved;
  const T decay;

  __device__ __forceinline__ explicit ClientUpdater(const ClientBlock<T>& block)
      : b(block), linear(b.p.linear ? b.p.linear + b.client * b.p.linear_stride : nullptr),
        velocity(b.p.velocity ? b.p.velocity + b.client * b.p.size : nullptr), saved(b.p.ends + b.client * b.p.size),
        decay(T(b.p.decay[b.client])) {}

  // Of ||g||^2: this thread's part.
  __device__ __forceinline__ double gradient_squares(int count) const {
    double sum = 0;
    each_tile(b, count, [&](auto& tile, int valid) {
      sum += tile_sum(tile, valid, [](const ParameterPiece<T>& piece, auto zero) { return squares(piece.g, zero); });
    });
    return sum;
  }
  // saved <- w, w <- w + factor g.
  __device__ __forceinline__ void ascend(int count, T factor) const {
    each_piece(count, [&](const ParameterPiece<T>& piece) {
      Four<T> w = load_four(piece.w);
      piece.write(saved, w);
#pragma unroll
      for (int j = 0; j < 4; ++j) w.at[j] = moved(w.at[j], piece.g.at[j], factor);
      store_four(piece.w, w);
    });
  }
  // Of ||u||^2, u = g + quadratic w + linear, after w <- saved if there was an ascent.
  __device__ __forceinline__ double update_squares(int count, bool ascended) const {
    double sum = 0;
    each_tile(b, count, [&](auto& tile, int valid) {
      sum += tile_sum(tile, valid, [&](const ParameterPiece<T>& piece, auto zero) {
        Four<T> w = ascended ? piece.read(saved) : load_four(piece.w);
        if (ascended) store_four(piece.w, w);
        return squares(corrected(piece, w), zero);
      });
    });
    return sum;
  }
  __device__ __forceinline__ void step(int count, T factor) const {
    const T lr = b.p.lr, momentum = b.p.momentum;
    each_piece(count, [&](const ParameterPiece<T>& piece) {
      Four<T> w = load_four(piece.w), d = corrected(piece, w);
#pragma unroll
      for (int j = 0; j < 4; ++j) d.at[j] = direction(d.at[j], w.at[j], factor, decay);
      if (velocity) {
        const Four<T> before = piece.read(velocity);
#pragma unroll
        for (int j = 0; j < 4; ++j) d.at[j] = with_momentum(before.at[j], d.at[j], momentum);
        piece.write(velocity, d);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) w.at[j] = moved(w.at[j], d.at[j], -lr);
      store_four(piece.w, w);
    });
  }
  // w <- start, velocity <- 0.
  __device__ __forceinline__ void begin() const {
    each_piece(0, [&](const ParameterPiece<T>& piece) {
      store_four(piece.w, piece.read(b.p.start));
      if (velocity) piece.write(velocity, Four<T>{});
    });
  }
  // end <- w; this thread's part of ||w - start||^2.
  __device__ __forceinline__ double finish() const {
    double sum = 0;
    each_tile(b, 0, [&](auto& tile, int valid) {
      sum += tile_sum(tile, valid, [&](const ParameterPiece<T>& piece, auto zero) {
        Four<T> w = load_four(piece.w);
        piece.write(saved, w);
        const Four<T> start = piece.read(b.p.start);
#pragma unroll
        for (int j = 0; j < 4; ++j) w.at[j] -= start.at[j];
        return squares(w, zero);
      });
    });
    return sum;
  }

 private:
  template <class F>
  __device__ __forceinline__ void each_piece(int count, F f) const {
    each_tile(b, count, [&](auto& tile, int valid) {
      constexpr int rows = int(sizeof(tile) / sizeof(tile[0]));
#pragma unroll
      for (int j = 0; j < rows; ++j)
        if (j < valid) f(tile[j]);
    });
  }
  __device__ __forceinline__ Four<T> corrected(const ParameterPiece<T>& piece, const Four<T>& w) const {
    Four<T> u = piece.g;
#pragma unroll
    for (int j = 0; j < 4; ++j) u.at[j] = with_quadratic(u.at[j], w.at[j], b.p.quadratic);
    if (linear) {
      const Four<T> v = piece.read(linear);
#pragma unroll
      for (int j = 0; j < 4; ++j) u.at[j] += v.at[j];
    }
    return u;
  }
};

}  // namespace fedasd::cuda
