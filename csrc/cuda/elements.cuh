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

// One row in memory; `stride` counts elements.
struct RowView {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t stride = 1;
};

__device__ __forceinline__ RowView row_of(const Matrix& m, int64_t row) {
  return {static_cast<const char*>(m.data) + row * m.row_stride * size_of(m.type), m.type, m.col_stride};
}

// A row to load, and what is padding in it: classes that do not exist, and `excluded` (-1: none).
template <class T>
struct Source {
  RowView row{};
  int excluded = -1;
  T pad = 0;
};

template <class T>
__device__ __forceinline__ T element(const RowView& row, int c) {
  T x{};
  with_type<T>(row.type,
               [&](auto zero) { x = T(widen(static_cast<const decltype(zero)*>(row.data)[c * row.stride])); });
  return x;
}

// Classes of a piece: neighbours that one thread moves at once, in words of 16 bytes or (a half type) 8.
constexpr int kPiece = 4;

// How many elements before `data` lies the nearest address to which a piece can be aligned.
__device__ __forceinline__ int misalignment(const void* data, DType type) {
  const unsigned address = unsigned(reinterpret_cast<uintptr_t>(data));
  switch (type) {
    case DType::f64: return int(address / 8 % 2);
    case DType::f32: return int(address / 4 % 4);
    default: return int(address / 2 % 4);
  }
}

// Where the pieces of a row lie: thread 0's first piece starts `shift` classes before the row does, so that
// from there on pieces are aligned in memory although the row is not.  Classes below 0 and from `classes`
// on do not exist: such places are padded when read and left alone when written.  Student, teacher and
// gradient share one shift; an array that is not aligned with it is moved element by element.
struct Span {
  int classes, shift;

  __device__ __forceinline__ bool aligned(const void* data, DType type, int64_t stride) const {
    return stride == 1 && misalignment(data, type) == (type == DType::f64 ? shift % 2 : shift);
  }
  // Some piece begins before the row or ends behind it.
  __device__ __forceinline__ bool ragged() const { return (shift | (classes + shift)) % kPiece != 0; }
  __device__ __forceinline__ bool has(int c) const { return c >= 0 && c < classes; }
  __device__ __forceinline__ bool whole(int c) const { return c >= 0 && c <= classes - kPiece; }
};

// Whether a row is read for the last time: it then leaves the caches first.
enum class Use { again, last };

// n pieces of a row on their way from memory, `step` classes apart.  fetch() only issues the loads; nothing waits for
// them before convert().  A loaded register that was used at once, to convert or to pad it, would keep the next load
// from being issued until it has arrived.
template <class T, int n>
struct Pieces {
  uint32_t word[n][sizeof(T)];  // elements side by side; of a half type that came one by one: one a word
  bool aligned = false;

  template <Use use = Use::again>
  __device__ __forceinline__ void fetch(const Source<T>& source, const Span& span, int first, int step) {
    const RowView& row = source.row;
    aligned = span.aligned(row.data, row.type, row.stride);
    with_type<T>(row.type, [&](auto zero) {
      using S = decltype(zero);
      const S* data = static_cast<const S*>(row.data);
      const S* const from = data + first;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        fill(word[j], Narrow<S>::of(source.pad));
        // Only the first piece can begin before the row does.
        if (aligned && (j > 0 || first >= 0) && first + j * step <= span.classes - kPiece)
          load<S, use>(word[j], from + j * step);
      }
      if (aligned && !span.ragged()) return;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int c = first + j * step;
        if (aligned && span.whole(c)) continue;
#pragma unroll
        for (int i = 0; i < kPiece; ++i)
          if (span.has(c + i)) load_one(word[j], i, data[(c + i) * row.stride]);
      }
    });
  }

  // x: n times four values.
  __device__ __forceinline__ void convert(T* x, const Source<T>& source, const Span& span, int first, int step) const {
    with_type<T>(source.row.type, [&](auto zero) {
      using S = decltype(zero);
      const bool side_by_side = sizeof(S) != 2 || (aligned && !span.ragged());
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const bool whole = side_by_side || (aligned && span.whole(first + j * step));
#pragma unroll
        for (int i = 0; i < kPiece; ++i) x[j * kPiece + i] = T(widen(element_at<S>(word[j], i, whole)));
      }
    });
    if (source.excluded < 0) return;
#pragma unroll
    for (int i = 0; i < n * kPiece; ++i)
      if (first + i / kPiece * step + i % kPiece == source.excluded) x[i] = source.pad;
  }

 private:
  template <class S>
  static constexpr int kWords = sizeof(S) == 2 ? 2 : sizeof(S);

  template <class S, Use use>
  static __device__ __forceinline__ void load(uint32_t* to, const S* from) {
    using Word = std::conditional_t<sizeof(S) == 2, uint2, uint4>;
#pragma unroll
    for (int i = 0; i < kWords<S>; i += int(sizeof(Word)) / 4) {
      const Word* at = reinterpret_cast<const Word*>(from) + i * 4 / int(sizeof(Word));
      const Word word = use == Use::last ? __ldcs(at) : __ldg(at);  // no kernel writes what it reads by these
      to[i] = word.x, to[i + 1] = word.y;
      if constexpr (sizeof(Word) == 16) to[i + 2] = word.z, to[i + 3] = word.w;
    }
  }
  // By arithmetic, not memcpy: bytes of different sizes in one array would send it to local memory.
  static __device__ __forceinline__ uint32_t bits(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ uint32_t bits(__half x) { return __half_as_ushort(x); }
  static __device__ __forceinline__ uint32_t bits(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

  template <class S>
  static __device__ __forceinline__ void load_one(uint32_t* to, int i, S x) {
    if constexpr (sizeof(S) == 8) {
      const uint64_t both = static_cast<uint64_t>(__double_as_longlong(x));
      to[2 * i] = uint32_t(both), to[2 * i + 1] = uint32_t(both >> 32);
    } else {
      to[i] = bits(x);
    }
  }
  // The same in every place, side by side or one a word.
  template <class S>
  static __device__ __forceinline__ void fill(uint32_t* to, S x) {
    if constexpr (sizeof(S) == 2) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) to[i] = bits(x) * 0x10001u;
    } else {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) load_one(to, i, x);
    }
  }
  template <class S>
  static __device__ __forceinline__ S element_at(const uint32_t* from, int i, bool whole) {
    if constexpr (sizeof(S) == 2) {
      const uint32_t word = whole ? from[i / 2] >> (i % 2 * 16) : from[i];
      if constexpr (std::is_same_v<S, __half>) return __ushort_as_half(static_cast<unsigned short>(word));
      else return __ushort_as_bfloat16(static_cast<unsigned short>(word));
    } else if constexpr (sizeof(S) == 8) {
      return __longlong_as_double(static_cast<long long>(uint64_t(from[2 * i + 1]) << 32 | from[2 * i]));
    } else {
      return __uint_as_float(from[i]);
    }
  }
};

// Writes n pieces, `step` classes apart.
template <int n, Use use, class T>
__device__ __forceinline__ void store_pieces(void* out, DType type, const T* x, const Span& span, int first, int step) {
  with_type<T>(type, [&](auto zero) {
    using S = decltype(zero);
    using Word = std::conditional_t<sizeof(S) == 2, uint2, uint4>;
    S* const row = static_cast<S*>(out);
    const bool aligned = span.aligned(out, type, 1), ragged = span.ragged();
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const int c = first + j * step;
      S piece[kPiece];
#pragma unroll
      for (int i = 0; i < kPiece; ++i) piece[i] = Narrow<S>::of(x[j * kPiece + i]);
      if (aligned && span.whole(c)) {
        constexpr int kWords = kPiece * int(sizeof(S)) / int(sizeof(Word));
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          Word word;
          memcpy(&word, &piece[i * kPiece / kWords], sizeof word);
          Word* const to = reinterpret_cast<Word*>(row + c) + i;
          use == Use::last ? __stcs(to, word) : __stwb(to, word);
        }
      } else if (!aligned || ragged) {
#pragma unroll
        for (int i = 0; i < kPiece; ++i)
          if (span.has(c + i)) row[c + i] = piece[i];
      }
    }
  });
}

}  // namespace fedasd::cuda
