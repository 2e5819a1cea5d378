// A whole block as the team for rows of more than 1024 classes: it reads the row once for each pass.
#pragma once

#include "elements.cuh"
#include "reduce.cuh"
#include "softmax.cuh"

namespace fedasd::cuda {

// In every step of a pass a thread has some pieces, `4 threads` classes apart, so that a warp reads consecutive words.
// Those of the next step are on their way, of student and teacher, while it works on these.
template <class T_>
struct BlockTeam {
  using T = T_;
  // Of one row, and of two at a time.
  static constexpr int kPieces = sizeof(T) == sizeof(double) ? 1 : 4;
  static constexpr int kPairPieces = sizeof(T) == sizeof(double) ? 1 : 2;
  // Two blocks a multiprocessor: one streams while the other meets at its barriers.
  static constexpr int kMaxThreads = 256, kMinBlocks = sizeof(T) == sizeof(double) ? 1 : 2;
  static constexpr bool kLong = true;
  struct Shared {
    BlockScratch<T, 1> one;
    BlockScratch<T, 3> three;
  };

  Shared& shared;
  Span span{};
  Source<T> student{}, teacher{};

  __device__ __forceinline__ explicit BlockTeam(Shared& scratch) : shared(scratch) {}
  __device__ __forceinline__ bool leader() const { return threadIdx.x == 0; }
  __device__ __forceinline__ int teams() const { return 1; }
  __device__ __forceinline__ int index() const { return 0; }

  __device__ __forceinline__ void start(const RowView& row, int classes) {
    span = {classes, row.stride == 1 ? misalignment(row.data, row.type) : 0};
  }
  // Nothing is read yet.
  __device__ __forceinline__ void load_student(const Source<T>& from) { student = from; }
  __device__ __forceinline__ void load_teacher(const Source<T>& from) { teacher = from; }
  __device__ __forceinline__ void load_both(const Source<T>& student_from, const Source<T>& teacher_from) {
    student = student_from, teacher = teacher_from;
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
    return softmax<sums>(student, scale, other_scale);
  }
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> teacher_softmax(T scale, T other_scale) {
    return softmax<sums>(teacher, scale, other_scale);
  }

  // Online: every thread keeps sums over its own running maximum, and they meet on the row's at the end.
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> softmax(Source<T> from, T scale, T other_scale) {
    Softmax<T> s;
    from.pad = -kInfinity<T>;
    each_step<Use::again>(from, [&](T(&x)[kPieces* kPiece], int) { add<sums>(s, x, scale, other_scale); });
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
    each_pair<Use::again>([&](auto& x, const auto& v, int) {
#pragma unroll
      for (int i = 0; i < kPairPieces * kPiece; ++i) f(x[i], v[i]);
    });
  }
  // Written at once: there is nowhere to keep it.
  template <class F>
  __device__ __forceinline__ void map(void* out, DType type, F f) {
    each_pair<Use::last>([&](auto& x, const auto& v, int c) {
#pragma unroll
      for (int i = 0; i < kPairPieces * kPiece; ++i) x[i] = f(x[i], v[i], column(c, i));
      put<kPairPieces>(out, type, x, c);
    });
  }
  template <class F>
  __device__ __forceinline__ void map_student(void* out, DType type, F f) {
    each_step<Use::last>(student, [&](T(&x)[kPieces* kPiece], int c) {
#pragma unroll
      for (int i = 0; i < kPieces * kPiece; ++i) x[i] = f(x[i], column(c, i));
      put<kPieces>(out, type, x, c);
    });
  }
  __device__ __forceinline__ void clear(void* out, DType type) {
    const T x[kPiece] = {};
    for (int c = first(); c < span.classes; c += piece_step()) put<1>(out, type, x, c);
  }
  __device__ __forceinline__ void store(void*, DType) {}

 private:
  __device__ __forceinline__ int first() const { return int(threadIdx.x) * kPiece - span.shift; }
  __device__ __forceinline__ int piece_step() const { return int(blockDim.x) * kPiece; }
  // The class of value i of the step that begins at c.
  __device__ __forceinline__ int column(int c, int i) const { return c + i / kPiece * piece_step() + i % kPiece; }

  template <SoftmaxSums sums, int n>
  static __device__ __forceinline__ void add(Softmax<T>& s, const T (&x)[n], T scale, T other_scale) {
    T top = s.shift;
#pragma unroll
    for (int i = 0; i < n; ++i) top = larger(top, x[i]);
    if (top == -kInfinity<T>) {
      // Only masked classes so far: they add nothing.  A NaN among them must not get lost.
#pragma unroll
      for (int i = 0; i < n; ++i)
        if (x[i] != x[i]) s.other_sum = s.sum = x[i];
      return;
    }
    s.template raise<sums>(top, scale, other_scale);
    Softmax<T> step;  // summed on its own first: fewer roundings in the long sum
    step.shift = top;
#pragma unroll
    for (int i = 0; i < n; ++i) step.template add<sums>(x[i], scale, other_scale);
    s.sum += step.sum;
    s.other_sum += step.other_sum;
    if constexpr (sums == SoftmaxSums::two_and_moment) s.other_moment += step.other_moment;
  }

  template <int n>
  __device__ __forceinline__ void put(void* out, DType type, const T (&x)[n * kPiece], int c) {
    if (out) store_pieces<n, Use::last>(out, type, x, span, c, piece_step());
  }
  // f(values, class); `use` says whether this is the last pass over the row.
  template <Use use, class F>
  __device__ __forceinline__ void each_step(const Source<T>& from, F f) {
    const int step = kPieces * piece_step();
    Pieces<T, kPieces> next;
    next.template fetch<use>(from, span, first(), piece_step());
    for (int c = first(); c < span.classes; c += step) {
      T x[kPieces * kPiece];
      next.convert(x, from, span, c, piece_step());
      next.template fetch<use>(from, span, c + step, piece_step());
      f(x, c);
    }
  }
  // f(students, teachers, class)
  template <Use use, class F>
  __device__ __forceinline__ void each_pair(F f) {
    const int step = kPairPieces * piece_step();
    Pieces<T, kPairPieces> next_student, next_teacher;
    auto fetch = [&](int c) {
      next_student.template fetch<use>(student, span, c, piece_step());
      next_teacher.template fetch<use>(teacher, span, c, piece_step());
    };
    fetch(first());
    for (int c = first(); c < span.classes; c += step) {
      T x[kPairPieces * kPiece], v[kPairPieces * kPiece];
      next_student.convert(x, student, span, c, piece_step());
      next_teacher.convert(v, teacher, span, c, piece_step());
      fetch(c + step);
      f(x, v, c);
    }
  }
};

}  // namespace fedasd::cuda
