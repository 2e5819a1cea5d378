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
// from there on pieces are aligned in the student's memory although the row is not.  Classes below 0 and from `classes`
// on do not exist: such places are padded when read and left alone when written.
struct Span {
  int classes, shift;

  // How many elements before a piece lies the nearest address of `data` that is aligned.
  __device__ __forceinline__ int offset(const void* data, DType type) const {
    return (misalignment(data, type) - shift) & (type == DType::f64 ? 1 : kPiece - 1);
  }
  // Some piece begins before the row or ends behind it.
  __device__ __forceinline__ bool ragged() const { return (shift | classes) % kPiece != 0; }
  __device__ __forceinline__ bool has(int c) const { return c >= 0 && c < classes; }
  __device__ __forceinline__ bool whole(int c) const { return c >= 0 && c <= classes - kPiece; }
};

// Whether a row is read for the last time: it then leaves the caches first.
enum class Use { again, last };

// Which rows may be aligned otherwise than the student's: none; rows of at most the pieces that a team has, of which
// those that would not fit then are moved element by element; rows that go on after these pieces.
enum class Offsets { none, of_short_rows, of_long_rows };

// Lanes that read a row together: neighbours have neighbouring pieces.
struct Lanes {
  int lane;
  unsigned mask;
};

// n pieces of a row on their way from memory, 4 `lanes` classes apart.  fetch() only issues the loads; nothing waits
// for them before convert().  A loaded register that was used at once, to convert or to pad it, would keep the next
// load from being issued until it has arrived.
//
// The words that are loaded are aligned in memory.  Where the row's alignment is not the student's, they begin `offset`
// elements before the pieces, and convert() moves the values between lanes.
//
// `inside`: so many pieces of each lane are surely within a row that is not ragged; -1: every piece is looked at,
// which takes fewer registers.
template <class T, int n, int lanes, int inside, Offsets offsets>
struct Pieces {
  static constexpr int kStep = lanes * kPiece;
  uint32_t word[n][sizeof(T)];  // elements side by side; of a half type that came one by one: one a word
  int offset = 0;
  bool wide = false, regular = false;

  // What is the same for all pieces of a row.
  __device__ __forceinline__ void aim(const Source<T>& source, const Span& span) {
    const RowView& row = source.row;
    const int found = span.offset(row.data, row.type);
    wide = row.stride == 1 && (found == 0 || offsets == Offsets::of_long_rows ||
                               (offsets == Offsets::of_short_rows && span.classes + span.shift + found <= n * kStep));
    offset = wide && offsets != Offsets::none ? found : 0;
  }

  template <Use use = Use::again>
  __device__ __forceinline__ void fetch(const Source<T>& source, const Span& span, int first) {
    const int start = first - offset;
    // Without a look at each piece: long rows but for their ends, and short rows that are not ragged.
    regular = inside >= 0 && wide && (inside == n || (offset == 0 && !span.ragged())) && start >= 0 &&
              start + (inside - 1) * kStep <= span.classes - kPiece;
    with_type<T>(source.row.type, [&](auto zero) {
      using S = decltype(zero);
      const S* const data = static_cast<const S*>(source.row.data);
      const S* const from = data + start;
      if (regular) {
#pragma unroll
        for (int j = 0; j < n; ++j) {
          if (j >= inside) fill(word[j], Narrow<S>::of(source.pad));
          if (j < inside || start + j * kStep < span.classes) load<S, use>(word[j], from + j * kStep);
        }
      } else {
#pragma unroll
        for (int j = 0; j < n; ++j) {
          fill(word[j], Narrow<S>::of(source.pad));
          if (wide && span.whole(start + j * kStep)) load<S, use>(word[j], from + j * kStep);
        }
#pragma unroll
        for (int j = 0; j < n; ++j) one_by_one(word[j], data, source, span, start + j * kStep);
      }
    });
  }

  // x: n times four values.
  __device__ __forceinline__ void convert(T (&x)[n * kPiece], const Source<T>& source, const Span& span, int first,
                                          const Lanes& at) const {
    with_type<T>(source.row.type, [&](auto zero) {
      using S = decltype(zero);
      const int start = first - offset;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const bool whole = sizeof(S) != 2 || regular || (wide && span.whole(start + j * kStep));
#pragma unroll
        for (int i = 0; i < kPiece; ++i) x[j * kPiece + i] = T(widen(element_at<S>(word[j], i, whole)));
      }
    });
    if constexpr (offsets != Offsets::none) {
      if (offset > 0) {
        // What follows the last lane's last word: in a cache of the multiprocessor, for the next warp has fetched it.
        T behind[kPiece - 1];
        const int next = first - offset + (n - 1) * kStep + kPiece;
#pragma unroll
        for (int i = 0; i < kPiece - 1; ++i) {
          behind[i] = source.pad;
          if (offsets == Offsets::of_long_rows && at.lane == lanes - 1 && i < offset && span.has(next + i))
            behind[i] = element<T>(source.row, next + i);
        }
        if (offset & 1) take_from_neighbour<1>(x, behind, at);
        if (offset & 2) take_from_neighbour<2>(x, behind, at);
      }
    }
    if (source.excluded < 0) return;
#pragma unroll
    for (int i = 0; i < n * kPiece; ++i)
      if (first + i / kPiece * kStep + i % kPiece == source.excluded) x[i] = source.pad;
  }

 private:
  // Every piece loses its first `by` values and gets those of the piece that follows it: the next lane's, and after the
  // last lane the first lane's next one.
  template <int by>
  static __device__ __forceinline__ void take_from_neighbour(T (&x)[n * kPiece], T (&behind)[kPiece - 1],
                                                             const Lanes& at) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      T taken[by];
#pragma unroll
      for (int i = 0; i < by; ++i) {
        const T next = x[(j + 1 < n ? j + 1 : j) * kPiece + i];
        taken[i] = __shfl_sync(at.mask, at.lane == 0 ? next : x[j * kPiece + i], (at.lane + 1) % lanes, lanes);
        if (j == n - 1 && at.lane == lanes - 1) taken[i] = behind[i];
      }
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        x[j * kPiece + i] = i + by < kPiece ? x[j * kPiece + (i + by) % kPiece] : taken[(i + by) % kPiece % by];
    }
#pragma unroll
    for (int i = 0; i + by < kPiece - 1; ++i) behind[i] = behind[i + by];
  }

  // The elements of a piece that was not loaded whole.
  template <class S>
  __device__ __forceinline__ void one_by_one(uint32_t* to, const S* data, const Source<T>& source, const Span& span,
                                             int c) const {
    if (wide && (span.whole(c) || c <= -kPiece || c >= span.classes)) return;
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (span.has(c + i)) load_one(to, i, data[(c + i) * source.row.stride]);
  }

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

// x += more at one place of n pieces, `step` classes apart: `place` is counted from the first.  A look at each piece,
// and at its values only where it has the place.
template <int n, class T>
__device__ __forceinline__ void add_at(T* x, int place, int step, T more) {
#pragma unroll
  for (int j = 0; j < n; ++j)
    if (unsigned(place - j * step) < unsigned(kPiece)) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        if (place - j * step == i) x[j * kPiece + i] += more;
    }
}

// Writes n pieces, `step` classes apart.
template <int n, Use use, class T>
__device__ __forceinline__ void store_pieces(void* out, DType type, const T* x, const Span& span, int first, int step) {
  with_type<T>(type, [&](auto zero) {
    using S = decltype(zero);
    using Word = std::conditional_t<sizeof(S) == 2, uint2, uint4>;
    S* const row = static_cast<S*>(out);
    const bool aligned = span.offset(out, type) == 0, ragged = span.ragged();
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
