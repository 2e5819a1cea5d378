// A team of lanes for rows of at most 1024 classes: it holds the row in registers.
#pragma once

#include "elements.cuh"
#include "reduce.cuh"
#include "softmax.cuh"

namespace fedasd::cuda {

// `lanes` lanes a row (32 / lanes rows a warp), `slots` classes a lane.  A lane holds chunks of four
// neighbouring classes, `4 lanes` apart, so that a group reads consecutive 16-byte pieces.
template <class T_, int lanes, int slots>
struct WarpTeam {
  using T = T_;
  static constexpr int kChunk = 4, kChunks = slots / kChunk, kCapacity = lanes * slots;
  // What registers allow: `slots` values each of student and teacher, and about 50 more.
  static constexpr bool kLong = slots * sizeof(T) >= 64;
  static constexpr int kMaxThreads = slots * sizeof(T) >= 128 || sizeof(T) == sizeof(double) ? 256 : kLong ? 384 : 512;
  static constexpr int kMinBlocks = slots * sizeof(T) <= 16 ? 2 : 1;
  struct Shared {};

  int lane = int(threadIdx.x) % lanes;
  unsigned mask = lanes == kWarp ? ~0u : ((1u << (lanes % kWarp)) - 1) << (int(threadIdx.x) % kWarp / lanes * lanes);
  Span span{};
  T student[slots], teacher[slots];

  __device__ __forceinline__ explicit WarpTeam(Shared&) {}
  __device__ __forceinline__ bool leader() const { return lane == 0; }
  __device__ __forceinline__ int teams() const { return int(blockDim.x) / lanes; }
  __device__ __forceinline__ int index() const { return int(threadIdx.x) / lanes; }

  // Chooses the row's alignment; it must leave the row within the registers' capacity.
  __device__ __forceinline__ void start(const RowView& row, int classes) {
    const int shift = row.stride == 1 ? misalignment(row.data, row.type, kChunk) : 0;
    span = {classes, classes + shift <= kCapacity ? shift : 0};
  }
  __device__ __forceinline__ int column(int chunk) const { return (chunk * lanes + lane) * kChunk - span.shift; }

  // `excluded` (-1: none) is read as padding too.
  __device__ __forceinline__ void load(T (&to)[slots], const RowView& row, int excluded, T pad) {
    with_type<T>(row.type, [&](auto zero) {
      const bool aligned = span.template aligned<kChunk>(row.data, row.type, row.stride);
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        T x[kChunk];
        load_chunk<decltype(zero)>(x, row, span, aligned, column(j), pad);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) to[j * kChunk + i] = column(j) + i == excluded ? pad : x[i];
      }
    });
  }
  __device__ __forceinline__ void load_student(const RowView& row, int excluded, T pad) {
    load(student, row, excluded, pad);
  }
  __device__ __forceinline__ void load_teacher(const RowView& row, int excluded, T pad) {
    load(teacher, row, excluded, pad);
  }

  __device__ __forceinline__ T sum(T x) { return group_reduce<lanes>(mask, x, Add{}); }
  __device__ __forceinline__ T max(T x) { return group_reduce<lanes>(mask, x, Larger{}); }

  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> softmax(const T (&x)[slots], T scale, T other_scale) {
    Softmax<T> s;
#pragma unroll
    for (int j = 0; j < slots; ++j) s.shift = larger(s.shift, x[j]);
    s.shift = max(s.shift);
#pragma unroll
    for (int j = 0; j < slots; ++j) s.template add<sums>(x[j], scale, other_scale);
    s.sum = sum(s.sum);
    if constexpr (sums != SoftmaxSums::one) s.other_sum = sum(s.other_sum);
    if constexpr (sums == SoftmaxSums::two_and_moment) s.other_moment = sum(s.other_moment);
    return s;
  }
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> student_softmax(T scale, T other_scale) {
    return softmax<sums>(student, scale, other_scale);
  }
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> teacher_softmax(T scale, T other_scale) {
    return softmax<sums>(teacher, scale, other_scale);
  }

  // f(student, teacher) of every class; padding included, which f must leave without effect.
  template <class F>
  __device__ __forceinline__ void each(F f) {
#pragma unroll
    for (int j = 0; j < slots; ++j) f(student[j], teacher[j]);
  }
  // f(student, teacher, class) replaces the student's value; store() writes it to `out`, if there is one.
  template <class F>
  __device__ __forceinline__ void map(void*, DType, F f) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = f(student[j], teacher[j], column(j / kChunk) + j % kChunk);
  }
  template <class F>
  __device__ __forceinline__ void map_student(void*, DType, F f) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = f(student[j], column(j / kChunk) + j % kChunk);
  }
  __device__ __forceinline__ void clear(void*, DType) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = 0;
  }
  __device__ __forceinline__ void store(void* out, DType type) {
    if (!out) return;
    with_type<T>(type, [&](auto zero) {
      const bool aligned = span.template aligned<kChunk>(out, type, 1);
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        T x[kChunk];
#pragma unroll
        for (int i = 0; i < kChunk; ++i) x[i] = student[j * kChunk + i];
        store_chunk(static_cast<decltype(zero)*>(out), x, span, aligned, column(j));
      }
    });
  }
};

}  // namespace fedasd::cuda
