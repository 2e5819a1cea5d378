// A team of lanes for rows of at most 1024 classes: it holds the row in registers.
#pragma once

#include "elements.cuh"
#include "reduce.cuh"
#include "row_parts.cuh"
#include "softmax.cuh"

namespace fedasd::cuda {

// `lanes` lanes a row (32 / lanes rows a warp), `slots` classes a lane.  A lane holds pieces of four
// neighbouring classes, `4 lanes` apart, so that a group reads consecutive words of 16 bytes.
template <class T_, int lanes, int slots>
struct WarpTeam {
  using T = T_;
  using Narrow = WarpTeam;  // see BlockTeam
  static constexpr int kPieces = slots / kPiece, kCapacity = lanes * slots;
  // What registers allow: `slots` values each of student and teacher, and about 50 more.
  static constexpr bool kLong = slots * sizeof(T) >= 64, kOfBlock = false;
  static constexpr int kMaxThreads = slots * sizeof(T) <= 32 ? 256 : 128;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  static constexpr int kBlocks = 2;  // Turing's code takes more registers for addresses
#else
  static constexpr int kBlocks = slots == kPiece ? 2 : 3;
#endif
  static constexpr int kMinBlocks = sizeof(T) == sizeof(double) ? 1 : kBlocks;
  static constexpr int kRawMinBlocks = slots == 2 * kPiece && kMinBlocks > 2 ? 2 : kMinBlocks;
  static constexpr int kRawAnyMinBlocks = slots == 8 * kPiece && kMinBlocks > 2 ? 2 : kRawMinBlocks;
  struct Shared {};

  int lane = int(threadIdx.x) % lanes;
  unsigned mask = lanes == kWarp ? ~0u : ((1u << (lanes % kWarp)) - 1) << (int(threadIdx.x) % kWarp / lanes * lanes);
  Span span{};
  T student[slots], teacher[slots];

  __device__ __forceinline__ explicit WarpTeam(Shared&, const RowParts& = {}, DType = DType::f32) {}
  __device__ __forceinline__ bool leader() const { return lane == 0; }
  __device__ __forceinline__ int teams() const { return int(blockDim.x) / lanes; }
  __device__ __forceinline__ int index() const { return int(threadIdx.x) / lanes; }

  // Chooses the row's alignment; it must leave the row within the registers' capacity.
  __device__ __forceinline__ void start(const RowView& row, int classes) {
    const int shift = row.stride == 1 ? misalignment(row.data, row.type) : 0;
    span = {classes, classes + shift <= kCapacity ? shift : 0};
  }
  __device__ __forceinline__ void load_student(const Source<T>& from) { load<Offsets::none>(student, from); }
  __device__ __forceinline__ void load_teacher(const Source<T>& from) { load<Offsets::of_short_rows>(teacher, from); }
  __device__ __forceinline__ void load_both(const Source<T>& student_from, const Source<T>& teacher_from) {
    RowPieces<Offsets::none> s;
    RowPieces<Offsets::of_short_rows> t;
    s.aim(student_from, span), t.aim(teacher_from, span);
    s.fetch(student_from, span, first());
    t.fetch(teacher_from, span, first());
    s.convert(student, student_from, span, first(), at());
    t.convert(teacher, teacher_from, span, first(), at());
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

  // Shifts the student's values by the row's maximum, and returns what is left to shift by.  The exponentials of many
  // values are computed again later: holding on to them as well would take the registers that other warps need.
  __device__ __forceinline__ T shift_student(T shift) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = kLong ? forgotten(student[j] - shift) : student[j] - shift;
    return 0;
  }

  // f(student, teacher) of every class; padding included, which f must leave without effect.
  template <class F>
  __device__ __forceinline__ void each(F f) {
#pragma unroll
    for (int j = 0; j < slots; ++j) f(student[j], teacher[j]);
  }
  // f(student, teacher), and `own` more at class `label`, replace the student's value; store() writes it to `out`, if
  // there is one.
  template <class F>
  __device__ __forceinline__ void map(void*, DType, int label, T own, F f) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = f(student[j], teacher[j]);
    add_at<kPieces>(student, label - first(), kStep, own);
  }
  template <class F>
  __device__ __forceinline__ void map_student(void*, DType, int label, T own, F f) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = f(student[j]);
    add_at<kPieces>(student, label - first(), kStep, own);
  }
  __device__ __forceinline__ void clear(void*, DType) {
#pragma unroll
    for (int j = 0; j < slots; ++j) student[j] = 0;
  }
  __device__ __forceinline__ void store(void* out, DType type) {
    if (out) store_pieces<kPieces, Use::again>(out, type, student, span, first(), kStep);
  }

 private:
  static constexpr int kStep = lanes * kPiece;  // classes between two pieces of a lane
  // Float's tiles (tiles.cuh) are more than half full.
  template <Offsets offsets>
  using RowPieces = Pieces<T, kPieces, lanes, sizeof(T) == sizeof(float) ? kPieces / 2 : 0, offsets>;

  __device__ __forceinline__ Lanes at() const { return {lane, mask}; }

  __device__ __forceinline__ int first() const { return lane * kPiece - span.shift; }
  template <Offsets offsets>
  __device__ __forceinline__ void load(T (&to)[slots], const Source<T>& from) {
    RowPieces<offsets> pieces;
    pieces.aim(from, span);
    pieces.fetch(from, span, first());
    pieces.convert(to, from, span, first(), at());
  }
};

}  // namespace fedasd::cuda
