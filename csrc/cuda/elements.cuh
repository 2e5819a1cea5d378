// Reads and writes rows of any element type, stride and alignment as float or double.
#pragma once

#include <cstring>
#include <type_traits>

#include "../asd/problem.h"
#include "platform.cuh"

namespace fedasd::cuda {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

// To the stored type, to nearest even.  A double becomes a half type through float, as on the CPU.
template <class S>
struct Narrow;
template <>
struct Narrow<float> {
  static __device__ __forceinline__ float of(double x) { return float(x); }
  static __device__ __forceinline__ float of(float x) { return x; }
};
template <>
struct Narrow<double> {
  static __device__ __forceinline__ double of(double x) { return x; }
};
template <>
struct Narrow<__half> {
  static __device__ __forceinline__ __half of(float x) { return __float2half_rn(x); }
};
template <>
struct Narrow<__nv_bfloat16> {
  static __device__ __forceinline__ __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); }
};

// Calls f with a value of the type's C++ counterpart.  The type is the same for a whole launch, so the
// branch never diverges, and one compiled kernel serves every mix of types.  Where arithmetic is float,
// nothing is double (asd.cu sees to that): a row of doubles on its way would take twice the registers.
template <class T, class F>
__device__ __forceinline__ void with_type(DType type, F f) {
  if constexpr (sizeof(T) == sizeof(double)) {
    if (type == DType::f64) return f(double{});
  }
  switch (type) {
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f16: return f(__half{});
    default: return f(float{});
  }
}

// x as it will be read back from memory of that type.
template <class T>
__device__ __forceinline__ T rounded_to(DType type, T x) {
  with_type<T>(type, [&](auto zero) { x = T(widen(Narrow<decltype(zero)>::of(x))); });
  return x;
}

// n consecutive elements, moved at once: in words of 16 bytes, or in one of 8 (four of a half type).  The
// intrinsics keep the compiler from taking a word apart again.
template <class S, int n>
struct Chunk {
  static constexpr int kBytes = n * sizeof(S) < 16 ? 8 : 16, kPerWord = kBytes / int(sizeof(S));
  using Word = std::conditional_t<kBytes == 16, uint4, uint2>;
  static_assert(n % kPerWord == 0, "whole words");
  S at[n];

  __device__ __forceinline__ void load(const S* from) {
#pragma unroll
    for (int i = 0; i < n; i += kPerWord) {
      const Word word = __ldg(reinterpret_cast<const Word*>(from + i));  // no kernel writes what it reads by this
      memcpy(&at[i], &word, kBytes);
    }
  }
  __device__ __forceinline__ void store(S* to) const {
#pragma unroll
    for (int i = 0; i < n; i += kPerWord) {
      Word word;
      memcpy(&word, &at[i], kBytes);
      __stwb(reinterpret_cast<Word*>(to + i), word);
    }
  }
};

// One row in memory; `stride` counts elements.
struct RowView {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t stride = 1;
};

__device__ __forceinline__ RowView row_of(const Matrix& m, int64_t row) {
  return {static_cast<const char*>(m.data) + row * m.row_stride * size_of(m.type), m.type, m.col_stride};
}

template <class T>
__device__ __forceinline__ T element(const RowView& row, int c) {
  T x{};
  with_type<T>(row.type,
               [&](auto zero) { x = T(widen(static_cast<const decltype(zero)*>(row.data)[c * row.stride])); });
  return x;
}

// Elements between two addresses to which a chunk of n can be aligned.
__device__ __forceinline__ int alignment(DType type, int n) {
  const int wide = 16 / int(size_of(type));
  return wide < n ? wide : n;
}
// How many elements before `data` the nearest such address lies.
__device__ __forceinline__ int misalignment(const void* data, DType type, int n) {
  const unsigned size = unsigned(size_of(type));
  return int(reinterpret_cast<uintptr_t>(data) / size % unsigned(alignment(type, n)));
}

// Where the chunks of a row lie: thread 0's first chunk starts `shift` classes before the row does, so that
// from there on chunks are aligned in memory although the row is not.  Classes below 0 and from `classes`
// on do not exist: such places are padded when read and left alone when written.  Student, teacher and
// gradient share one shift; an array that is not aligned with it is moved element by element.
struct Span {
  int classes, shift;

  template <int n>
  __device__ __forceinline__ bool aligned(const void* data, DType type, int64_t stride) const {
    return stride == 1 && misalignment(data, type, n) == shift % alignment(type, n);
  }
  __device__ __forceinline__ bool has(int c) const { return c >= 0 && c < classes; }
  template <int n>
  __device__ __forceinline__ bool whole(int c) const {
    return c >= 0 && c + n <= classes;
  }
};

// n classes from c on.
template <class S, class T, int n>
__device__ __forceinline__ void load_chunk(T (&x)[n], const RowView& row, const Span& span, bool aligned, int c,
                                           T pad) {
  const S* data = static_cast<const S*>(row.data);
  if (aligned && span.whole<n>(c)) {
    Chunk<S, n> chunk;
    chunk.load(data + c);
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = T(widen(chunk.at[i]));
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = span.has(c + i) ? T(widen(data[(c + i) * row.stride])) : pad;
  }
}

template <class S, class T, int n>
__device__ __forceinline__ void store_chunk(S* row, const T (&x)[n], const Span& span, bool aligned, int c) {
  if (aligned && span.whole<n>(c)) {
    Chunk<S, n> chunk;
#pragma unroll
    for (int i = 0; i < n; ++i) chunk.at[i] = Narrow<S>::of(x[i]);
    chunk.store(row + c);
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i)
      if (span.has(c + i)) row[c + i] = Narrow<S>::of(x[i]);
  }
}

}  // namespace fedasd::cuda
