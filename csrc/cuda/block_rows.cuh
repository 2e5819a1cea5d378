// A whole block, or some blocks (row_parts.cuh), as the team for rows of more than 1024 classes: it reads the row once
// for each pass.
#pragma once

#include "elements.cuh"
#include "reduce.cuh"
#include "row_parts.cuh"
#include "softmax.cuh"

namespace fedasd::cuda {

// In every step of a pass a warp has consecutive words, and a thread some pieces of them.  Those of the next step are
// on their way, of student and teacher, while it works on these.
template <class T_, Offsets offsets_of_teacher = Offsets::of_long_rows>
struct BlockTeam {
  using T = T_;
  // For kernels short of registers: one way to load, which moves what is not aligned one by one.
  using Narrow = BlockTeam<T, Offsets::none>;
  // Of one row, and of two at a time.
  static constexpr int kPieces = sizeof(T) == sizeof(double) ? 1 : 4;
  static constexpr int kPairPieces = sizeof(T) == sizeof(double) ? 1 : 2;
  // Two blocks a multiprocessor: one streams while the other meets at its barriers.
  static constexpr int kMaxThreads = 256, kMinBlocks = sizeof(T) == sizeof(double) ? 1 : 2, kRawMinBlocks = kMinBlocks,
                       kRawAnyMinBlocks = 1;
  static constexpr bool kLong = true, kOfBlock = true;
  struct Shared {
    BlockScratch<T, 1> one;
    BlockScratch<T, 3> three;
  };

  Shared& shared;
  Span span{};
  Source<T> student{}, teacher{};
  RowParts parts;

  // `type` is that of rows whose type is known to the compiler, see Rows.
  __device__ __forceinline__ explicit BlockTeam(Shared& scratch, const RowParts& parts_ = {}, DType type = DType::f32)
      : shared(scratch), parts(parts_) {
    student.row.type = teacher.row.type = type;
  }
  __device__ __forceinline__ bool leader() const { return threadIdx.x == 0 && parts.index == 0; }
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
    if constexpr (kInParts) {
      if (parts.count > 1) {
        if (!parts.collect(one)) one[0] = 0;
        block_reduce(one, shared.one, T(0), Add{});
      }
    }
    return one[0];
  }

  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> student_softmax(T scale, T other_scale) {
    return softmax<sums, Offsets::none>(student, scale, other_scale);
  }
  template <SoftmaxSums sums>
  __device__ __forceinline__ Softmax<T> teacher_softmax(T scale, T other_scale) {
    return softmax<sums, offsets_of_teacher>(teacher, scale, other_scale);
  }
  // Nothing is kept to be shifted.
  __device__ __forceinline__ T shift_student(T shift) { return forgotten(shift); }

  // Online: every thread keeps sums over its own running maximum, and they meet on the row's at the end.
  template <SoftmaxSums sums, Offsets offsets>
  __device__ __forceinline__ Softmax<T> softmax(Source<T> from, T scale, T other_scale) {
    Softmax<T> s;
    from.pad = -kInfinity<T>;
    each_step<Use::again, offsets>(from, [&](T(&x)[kPieces* kPiece], int) { add<sums>(s, x, scale, other_scale); });
    meet<sums>(s, scale, other_scale);
    if constexpr (kInParts) {
      if (parts.count > 1) {
        T numbers[4] = {s.shift, s.sum, s.other_sum, s.other_moment};
        s = {};
        if (parts.collect(numbers))
          s.shift = numbers[0], s.sum = numbers[1], s.other_sum = numbers[2], s.other_moment = numbers[3];
        meet<sums>(s, scale, other_scale);
      }
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
  __device__ __forceinline__ void map(void* out, DType type, int label, T own, F f) {
    each_pair<Use::last>([&](auto& x, const auto& v, int c) {
#pragma unroll
      for (int i = 0; i < kPairPieces * kPiece; ++i) x[i] = f(x[i], v[i]);
      add_at<kPairPieces>(x, label - c, kStep, own);
      put<kPairPieces>(out, type, x, c);
    });
  }
  template <class F>
  __device__ __forceinline__ void map_student(void* out, DType type, int label, T own, F f) {
    each_step<Use::last, Offsets::none>(student, [&](T(&x)[kPieces* kPiece], int c) {
#pragma unroll
      for (int i = 0; i < kPieces * kPiece; ++i) x[i] = f(x[i]);
      add_at<kPieces>(x, label - c, kStep, own);
      put<kPieces>(out, type, x, c);
    });
  }
  __device__ __forceinline__ void clear(void* out, DType type) {
    const T x[kPiece] = {};
    for (int c = first(1); c < span.classes; c += step(1)) put<1>(out, type, x, c + lane() * kPiece);
  }
  __device__ __forceinline__ void store(void*, DType) {}

 private:
  static constexpr bool kInParts = sizeof(T) == sizeof(float);  // doubles are for checking gradients
  static constexpr int kStep = kWarp * kPiece;                  // classes between two pieces of a thread
  template <int n, Offsets offsets>
  using RowPieces = Pieces<T, n, kWarp, offsets_of_teacher == Offsets::none ? -1 : n, offsets>;

  __device__ __forceinline__ int lane() const { return int(threadIdx.x) % kWarp; }
  __device__ __forceinline__ Lanes at() const { return {lane(), ~0u}; }
  // Of n pieces a thread: the first class of a warp, and the classes that the row's warps have in a step.
  __device__ __forceinline__ int first(int n) const {
    return (parts.index * int(blockDim.x / kWarp) + int(threadIdx.x / kWarp)) * n * kStep - span.shift;
  }
  __device__ __forceinline__ int step(int n) const { return parts.count * int(blockDim.x) * n * kPiece; }

  // The threads' sums become the block's.
  template <SoftmaxSums sums>
  __device__ __forceinline__ void meet(Softmax<T>& s, T scale, T other_scale) {
    T top[1] = {s.shift};
    block_reduce(top, shared.one, -kInfinity<T>, Larger{});
    s.template raise<sums>(top[0], scale, other_scale);
    if constexpr (sums == SoftmaxSums::one) {
      T one[1] = {s.sum};
      block_reduce(one, shared.one, T(0), Add{});
      s.sum = one[0];
    } else {
      T all[3] = {s.sum, s.other_sum, s.other_moment};
      block_reduce(all, shared.three, T(0), Add{});
      s.sum = all[0], s.other_sum = all[1], s.other_moment = all[2];
    }
  }

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
    if (out) store_pieces<n, Use::last>(out, type, x, span, c, kStep);
  }
  // f(values, class); `use` says whether this is the last pass over the row.  All lanes of a warp make the same number
  // of steps: they may exchange values.
  template <Use use, Offsets offsets, class F>
  __device__ __forceinline__ void each_step(const Source<T>& from, F f) {
    const int begin = first(kPieces) + lane() * kPiece, end = span.classes + lane() * kPiece;
    RowPieces<kPieces, offsets> next;
    next.aim(from, span);
    next.template fetch<use>(from, span, begin);
    for (int c = begin; c < end; c += step(kPieces)) {
      T x[kPieces * kPiece];
      next.convert(x, from, span, c, at());
      next.template fetch<use>(from, span, c + step(kPieces));
      f(x, c);
    }
  }
  // f(students, teachers, class)
  template <Use use, class F>
  __device__ __forceinline__ void each_pair(F f) {
    const int begin = first(kPairPieces) + lane() * kPiece, end = span.classes + lane() * kPiece;
    RowPieces<kPairPieces, Offsets::none> next_student;
    RowPieces<kPairPieces, offsets_of_teacher> next_teacher;
    next_student.aim(student, span), next_teacher.aim(teacher, span);
    auto fetch = [&](int c) {
      next_student.template fetch<use>(student, span, c);
      next_teacher.template fetch<use>(teacher, span, c);
    };
    fetch(begin);
    for (int c = begin; c < end; c += step(kPairPieces)) {
      T x[kPairPieces * kPiece], v[kPairPieces * kPiece];
      next_student.convert(x, student, span, c, at());
      next_teacher.convert(v, teacher, span, c, at());
      fetch(c + step(kPairPieces));
      f(x, v, c);
    }
  }
};

}  // namespace fedasd::cuda
