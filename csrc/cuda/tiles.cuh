// Which team of threads computes a row of a given length: the first tile that holds it.
#pragma once

#include "block_rows.cuh"
#include "warp_rows.cuh"

namespace fedasd::cuda {

template <class T, int lanes_, int slots_>
struct WarpTile {
  static constexpr int lanes = lanes_;
  using Team = WarpTeam<T, lanes_, slots_>;
};
template <class T>
struct BlockTile {
  static constexpr int lanes = 0;
  using Team = BlockTeam<T>;
};

// f is given the tile as a value.  Short rows share a warp: eight, four or two of them.
template <class F>
auto with_tile(float, int64_t classes, F f) {
  if (classes <= 16) return f(WarpTile<float, 4, 4>{});
  if (classes <= 32) return f(WarpTile<float, 8, 4>{});
  if (classes <= 64) return f(WarpTile<float, 16, 4>{});
  if (classes <= 128) return f(WarpTile<float, 16, 8>{});
  if (classes <= 256) return f(WarpTile<float, 32, 8>{});
  if (classes <= 512) return f(WarpTile<float, 32, 16>{});
  if (classes <= 1024) return f(WarpTile<float, 32, 32>{});
  return f(BlockTile<float>{});
}

// Doubles take two registers each and are for checking gradients: fewer tiles, and rows leave the registers earlier.
template <class F>
auto with_tile(double, int64_t classes, F f) {
  if (classes <= 32) return f(WarpTile<double, 8, 4>{});
  if (classes <= 256) return f(WarpTile<double, 32, 8>{});
  return f(BlockTile<double>{});
}

}  // namespace fedasd::cuda
