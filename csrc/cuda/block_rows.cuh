// A whole block as the team for rows of more than 1024 classes: it reads the row once for each pass.
#pragma once

#include "elements.cuh"
#include "reduce.cuh"
#include "softmax.cuh"

namespace fedasd::cuda {

template <class T_>
struct BlockTeam {
  using T = T_;
  // 16 bytes of a half type, two accesses of float or double.
  static constexpr int kChunk = sizeof(T) == sizeof(double) ? 4 : 8;
  static constexpr int kMaxThreads = sizeof(T) == sizeof(double) ? 256 : 512, kMinBlocks = 1;
  static constexpr bool kLong = true;
  struct Shared {
    BlockScratch<T, 1> one;
    BlockScratch<T, 3> three;
  };

  Shared& shared;
  Span span{};
  RowView student{}, teacher{};
  int excluded_student = -1, excluded_teacher = -1;
  T student_pad = 0, teacher_pad = 0;

  __device__ __forceinline__ explicit BlockTeam(Shared& scratch) : shared(scratch) {}
  __device__ __forceinline__ bool leader() const { return threadIdx.x == 0; }
  __device__ __forceinline__ int teams() const { return 1; }
  __device__ __forceinline__ int index() const { return 0; }

  __device__ __forceinline__ void start(const RowView& row, int classes) {
    span = {classes, row.stride == 1 ? misalignment(row.data, row.type, kChunk) : 0};
  }
  // Nothing is read yet.
  __device__ __forceinline__ void load_student(const RowView& row, int excluded, T pad) {
    student = row, excluded_student = excluded, student_pad = pad;
  }
  __device__ __forceinline__ void load_teacher(const RowView& row, int excluded, T pad) {
    teacher = row, excluded_teacher = excluded, teacher_pad = pad;
  }

  __device__ __forceinline__ T sum(T x) {
    T one[1] = {x};
    block_reduce(one, shared.one, T(0), Add{});
    return one[0];
  }
  __device__ __forceinline__ T max(T x) {
    T one[1] = {x};
    block_reduce(one, shared.one, -kInfinity<T>, Larger{});
    return one[0];
  }

  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> student_softmax(T scale, T other_scale) {
    return softmax<sums>(student, excluded_student, scale, other_scale);
  }
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> teacher_softmax(T scale, T other_scale) {
    return softmax<sums>(teacher, excluded_teacher, scale, other_scale);
  }

  // Online: every thread keeps sums over its own running maximum, and they meet on the row's at the end.
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> softmax(const RowView& row, int excluded, T scale, T other_scale) {
    Softmax<T> s;
    const bool aligned = span.template aligned<kChunk>(row.data, row.type, row.stride);
    auto read = [&](T(&x)[kChunk], int c) { load(x, row, aligned, c, excluded, -kInfinity<T>); };
    each_chunk(read, [&](const T(&x)[kChunk], int) {
      T top = s.shift;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) top = larger(top, x[i]);
      if (top == -kInfinity<T>) {
        // Only masked classes so far: they add nothing.  A NaN among them must not get lost.
#pragma unroll
        for (int i = 0; i < kChunk; ++i)
          if (x[i] != x[i]) s.other_sum = s.sum = x[i];
        return;
      }
      s.template raise<sums>(top, scale, other_scale);
      Softmax<T> chunk;  // summed on its own first: fewer roundings in the long sum
      chunk.shift = top;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) chunk.template add<sums>(x[i], scale, other_scale);
      s.sum += chunk.sum;
      s.other_sum += chunk.other_sum;
      if constexpr (sums == SoftmaxSums::two_and_moment) s.other_moment += chunk.other_moment;
    });
    s.template raise<sums>(max(s.shift), scale, other_scale);
    if constexpr (sums == SoftmaxSums::one) {
      s.sum = sum(s.sum);
    } else {
      T all[3] = {s.sum, s.other_sum, s.other_moment};
      block_reduce(all, shared.three, T(0), Add{});
      s.sum = all[0], s.other_sum = all[1], s.other_moment = all[2];
    }
    return s;
  }

  template <class F>
  __device__ __forceinline__ void each(F f) {
    each_pair([&](T(&x)[kChunk], const T(&v)[kChunk], int) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) f(x[i], v[i]);
    });
  }
  // Written at once: there is nowhere to keep it.
  template <class F>
  __device__ __forceinline__ void map(void* out, DType type, F f) {
    each_pair([&](T(&x)[kChunk], const T(&v)[kChunk], int c) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) x[i] = f(x[i], v[i], c + i);
      put(out, type, x, c);
    });
  }
  template <class F>
  __device__ __forceinline__ void map_student(void* out, DType type, F f) {
    const bool aligned = span.template aligned<kChunk>(student.data, student.type, student.stride);
    auto read = [&](T(&x)[kChunk], int c) { load(x, student, aligned, c, excluded_student, student_pad); };
    each_chunk(read, [&](T(&x)[kChunk], int c) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) x[i] = f(x[i], c + i);
      put(out, type, x, c);
    });
  }
  __device__ __forceinline__ void clear(void* out, DType type) {
    const T x[kChunk] = {};
    for (int c = first(); c < span.classes; c += step()) put(out, type, x, c);
  }
  __device__ __forceinline__ void store(void*, DType) {}

 private:
  __device__ __forceinline__ int first() const { return int(threadIdx.x) * kChunk - span.shift; }
  __device__ __forceinline__ int step() const { return int(blockDim.x) * kChunk; }

  // f(chunk, class), of what read(chunk, class) gives.  The next chunk is on its way while f works on this one.
  template <class Read, class F>
  __device__ __forceinline__ void each_chunk(Read read, F f) {
    T next[kChunk];
    int c = first();
    if (c < span.classes) read(next, c);
    for (; c < span.classes; c += step()) {
      T x[kChunk];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) x[i] = next[i];
      if (c + step() < span.classes) read(next, c + step());
      f(x, c);
    }
  }
  __device__ __forceinline__ void load(T (&x)[kChunk], const RowView& row, bool aligned, int c, int excluded, T pad) {
    with_type<T>(row.type, [&](auto zero) { load_chunk<decltype(zero)>(x, row, span, aligned, c, pad); });
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = c + i == excluded ? pad : x[i];
  }
  __device__ __forceinline__ void put(void* out, DType type, const T (&x)[kChunk], int c) {
    if (!out) return;
    const bool aligned = span.template aligned<kChunk>(out, type, 1);
    with_type<T>(type, [&](auto zero) { store_chunk(static_cast<decltype(zero)*>(out), x, span, aligned, c); });
  }
  template <class F>
  __device__ __forceinline__ void each_pair(F f) {
    const bool student_aligned = span.template aligned<kChunk>(student.data, student.type, student.stride);
    const bool teacher_aligned = span.template aligned<kChunk>(teacher.data, teacher.type, teacher.stride);
    auto read = [&](T(&x)[kChunk], int c) { load(x, student, student_aligned, c, excluded_student, student_pad); };
    each_chunk(read, [&](T(&x)[kChunk], int c) {
      T v[kChunk];
      load(v, teacher, teacher_aligned, c, excluded_teacher, teacher_pad);
      f(x, v, c);
    });
  }
};

}  // namespace fedasd::cuda
