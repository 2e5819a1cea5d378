// The CPU kernels of a chain of linear layers: one instruction set's compiled code, for floats or doubles.
#pragma once

#include <cstdint>

#include "../chain/problem.h"

namespace fedasd::cpu {

// Matrices are rows of numbers with a stride between rows.  Columns are padded: `columns` is a multiple of `lanes`, and
// whatever lies in the padding may be read and written.
template <class T>
struct ChainKernels {
  int64_t lanes;
  // c [m, columns] = a [m, k] b [k, columns].  a's element (i, j) is a[i row + j step], so that a may be a transpose.
  void (*multiply)(const T* a, int64_t row, int64_t step, const T* b, int64_t b_stride, T* c, int64_t c_stride,
                   int64_t m, int64_t columns, int64_t k);
  // y <- f(y) for y [rows, columns] and f'(y), unless f is relu, whose derivative can be read off y.
  void (*activate)(Activation f, T* y, int64_t stride, T* derivative, int64_t derivative_stride, int64_t rows,
                   int64_t columns);
  // to [columns, rows] = the transpose of from [rows, columns]; nothing is padded.
  void (*transpose)(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns);
  // gradient [rows, columns] <- gradient * f', which is y > 0 for relu.
  void (*chain_rule)(Activation f, T* gradient, int64_t stride, const T* y, int64_t y_stride, const T* derivative,
                     int64_t derivative_stride, int64_t rows, int64_t columns);
};

}  // namespace fedasd::cpu
