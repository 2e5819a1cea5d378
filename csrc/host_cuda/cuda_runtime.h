// The part of the CUDA runtime API that the kernels use, for g++ and clang++; executor.h runs them.
#pragma once

#include <math.h>

#include <cstring>
#include <type_traits>

#include "executor.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// On a GPU: __shared__ Type name.  The key is a static variable, so that every instantiation of a template has its own.
#define FEDASD_SHARED(Type, name)   \
  static const char name##_key = 0; \
  Type& name =                      \
      *static_cast<std::add_pointer_t<Type>>(host_cuda::shared(&name##_key, sizeof(Type), alignof(Type), #name))
// On a GPU: extern __shared__ unsigned char name[], as long as the launch says.
#define FEDASD_DYNAMIC_SHARED(name) \
  unsigned char* const name = static_cast<unsigned char*>(host_cuda::dynamic_shared(#name))
#define FEDASD_DEVICE_ASSERT(condition) \
  ((condition) ? void() : host_cuda::assertion_failed(#condition, {__FILE__, __LINE__}))

#define threadIdx (host_cuda::thread_index())
#define blockIdx (host_cuda::block_index())
#define blockDim (host_cuda::block_size())
#define gridDim (host_cuda::grid_size())
constexpr int warpSize = 32;

// Every wrapper is inlined, so that the address an error is traced to lies in the kernel.
#define HOST_CUDA_INLINE inline __attribute__((always_inline))
// Where a barrier was called.  On a GPU these two arguments do not exist.
#define HOST_CUDA_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

HOST_CUDA_INLINE void __syncthreads(HOST_CUDA_HERE) { host_cuda::block_barrier({file, line}); }
HOST_CUDA_INLINE void __syncwarp(unsigned mask = ~0u, HOST_CUDA_HERE) {
  host_cuda::warp({host_cuda::WarpOp::sync, mask, 0, 0, 32}, {file, line});
}
HOST_CUDA_INLINE unsigned __ballot_sync(unsigned mask, int predicate, HOST_CUDA_HERE) {
  return unsigned(host_cuda::warp({host_cuda::WarpOp::ballot, mask, predicate != 0, 0, 32}, {file, line}));
}
HOST_CUDA_INLINE int __any_sync(unsigned mask, int predicate, HOST_CUDA_HERE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
HOST_CUDA_INLINE int __all_sync(unsigned mask, int predicate, HOST_CUDA_HERE) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}

namespace host_cuda {
template <class T>
HOST_CUDA_INLINE T shuffle(WarpOp::Kind kind, unsigned mask, T value, int lane, int width, Place place) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a shuffle moves at most 8 bytes");
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp({kind, mask, bits, lane, width}, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
}  // namespace host_cuda

template <class T>
HOST_CUDA_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32, HOST_CUDA_HERE) {
  return host_cuda::shuffle(host_cuda::WarpOp::shuffle, mask, value, lane, width, {file, line});
}
template <class T>
HOST_CUDA_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, HOST_CUDA_HERE) {
  return host_cuda::shuffle(host_cuda::WarpOp::shuffle_xor, mask, value, lane_mask, width, {file, line});
}
template <class T>
HOST_CUDA_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, HOST_CUDA_HERE) {
  return host_cuda::shuffle(host_cuda::WarpOp::shuffle_down, mask, value, int(delta), width, {file, line});
}

// Loads and stores leave through executor.cpp, which is not instrumented: a plain one here would count twice.
namespace host_cuda {
template <class T, class... One>
constexpr bool is_one_of = (std::is_same_v<T, One> || ...);
template <class T>
constexpr bool is_loadable =
    is_one_of<T, int, unsigned, unsigned long long, float, double, int2, int4, uint2, uint4, float2, float4, double2>;

template <class T>
HOST_CUDA_INLINE T load(const T* from, Memory memory) {
  static_assert(is_loadable<T>);
  T value;
  load(&value, from, sizeof(T), memory);
  return value;
}
template <class T>
HOST_CUDA_INLINE void store(T* to, T value, Memory memory) {
  static_assert(is_loadable<T>);
  store(to, &value, sizeof(T), memory);
}
// Nothing else runs between the load and the store: threads switch in pause() only.
template <class T, class Next>
HOST_CUDA_INLINE T atomic(T* p, Next next) {
  pause();
  const T old = load(p, Memory::communication);
  store(p, T(next(old)), Memory::communication);
  return old;
}
template <class T>
struct Same {
  using type = T;
};  // as in launch(): the pointer alone says what T is
}  // namespace host_cuda

template <class T>
HOST_CUDA_INLINE T __ldg(const T* p) {
  return host_cuda::load(p, host_cuda::Memory::plain);
}
template <class T>
HOST_CUDA_INLINE T __ldca(const T* p) {
  return host_cuda::load(p, host_cuda::Memory::plain);
}
template <class T>
HOST_CUDA_INLINE T __ldcs(const T* p) {
  return host_cuda::load(p, host_cuda::Memory::plain);
}
template <class T>
HOST_CUDA_INLINE void __stwb(T* p, typename host_cuda::Same<T>::type x) {
  host_cuda::store(p, x, host_cuda::Memory::plain);
}
template <class T>
HOST_CUDA_INLINE void __stcs(T* p, typename host_cuda::Same<T>::type x) {
  host_cuda::store(p, x, host_cuda::Memory::plain);
}
template <class T>
HOST_CUDA_INLINE T __ldcg(const T* p) {
  host_cuda::pause();
  return host_cuda::load(p, host_cuda::Memory::communication);
}
template <class T>
HOST_CUDA_INLINE void __stcg(T* p, typename host_cuda::Same<T>::type x) {
  host_cuda::pause();
  host_cuda::store(p, x, host_cuda::Memory::communication);
}
HOST_CUDA_INLINE void __threadfence() { host_cuda::fence(); }
HOST_CUDA_INLINE void __threadfence_block() { host_cuda::pause(); }

template <class T>
HOST_CUDA_INLINE T atomicAdd(T* p, typename host_cuda::Same<T>::type x) {
  static_assert(host_cuda::is_one_of<T, int, unsigned, unsigned long long, float, double>);
  return host_cuda::atomic(p, [x](T old) { return old + x; });
}
template <class T>
HOST_CUDA_INLINE T atomicExch(T* p, typename host_cuda::Same<T>::type x) {
  static_assert(host_cuda::is_one_of<T, int, unsigned, unsigned long long, float>);
  return host_cuda::atomic(p, [x](T) { return x; });
}
template <class T>
HOST_CUDA_INLINE T atomicCAS(T* p, typename host_cuda::Same<T>::type expected, typename host_cuda::Same<T>::type x) {
  static_assert(host_cuda::is_one_of<T, int, unsigned, unsigned long long>);
  return host_cuda::atomic(p, [=](T old) { return old == expected ? x : old; });
}
template <class T>
HOST_CUDA_INLINE T atomicMax(T* p, typename host_cuda::Same<T>::type x) {
  static_assert(host_cuda::is_one_of<T, int, unsigned, unsigned long long>);
  return host_cuda::atomic(p, [x](T old) { return old < x ? x : old; });
}

namespace host_cuda {
template <class To, class From>
HOST_CUDA_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
}  // namespace host_cuda
HOST_CUDA_INLINE float __int_as_float(int x) { return host_cuda::bits<float>(x); }
HOST_CUDA_INLINE int __float_as_int(float x) { return host_cuda::bits<int>(x); }
HOST_CUDA_INLINE float __uint_as_float(unsigned x) { return host_cuda::bits<float>(x); }
HOST_CUDA_INLINE unsigned __float_as_uint(float x) { return host_cuda::bits<unsigned>(x); }
HOST_CUDA_INLINE long long __double_as_longlong(double x) { return host_cuda::bits<long long>(x); }
HOST_CUDA_INLINE double __longlong_as_double(long long x) { return host_cuda::bits<double>(x); }

namespace host_cuda {
// ex2.approx.ftz.f32, as bad as PTX allows it to be: off by 2^-22 in a direction that depends on x.
inline float ex2_approx_ftz(float x) {
  const float y = exp2f(x);
  if (y < 0x1p-126f) return 0;
  if (!(x - x == 0) || !(y - y == 0) || fabsf(x) < 0x1p-126f) return y;
  const unsigned hash = bits<unsigned>(x) * 0x9e3779b1u >> 30;
  return hash == 0 ? y * (1 + 0x1p-22f) : hash == 1 ? y * (1 - 0x1p-22f) : y;
}
}  // namespace host_cuda

// Kernels are compiled with -ffp-contract=off, so each of these is rounded on its own.
HOST_CUDA_INLINE float __fadd_rn(float a, float b) { return a + b; }
HOST_CUDA_INLINE float __fsub_rn(float a, float b) { return a - b; }
HOST_CUDA_INLINE float __fmul_rn(float a, float b) { return a * b; }
HOST_CUDA_INLINE float __fdiv_rn(float a, float b) { return a / b; }
HOST_CUDA_INLINE float __frcp_rn(float a) { return 1.0f / a; }
HOST_CUDA_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
HOST_CUDA_INLINE double __dadd_rn(double a, double b) { return a + b; }
HOST_CUDA_INLINE double __dsub_rn(double a, double b) { return a - b; }
HOST_CUDA_INLINE double __dmul_rn(double a, double b) { return a * b; }
// To the nearest, halves to even; what does not fit becomes the nearest that does, NaN the smallest.
HOST_CUDA_INLINE long long __double2ll_rn(double x) {
  if (!(x > -0x1p63)) return -0x7fffffffffffffff - 1;
  return x < 0x1p63 ? static_cast<long long>(nearbyint(x)) : 0x7fffffffffffffff;
}

template <class T>
HOST_CUDA_INLINE std::enable_if_t<std::is_integral_v<T>, T> min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
HOST_CUDA_INLINE std::enable_if_t<std::is_integral_v<T>, T> max(T a, T b) {
  return a < b ? b : a;
}
HOST_CUDA_INLINE int __ffs(int x) { return __builtin_ffs(x); }
HOST_CUDA_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
HOST_CUDA_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorCooperativeLaunchTooLarge = 720 };
using cudaStream_t = struct CUstream_st*;
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess             ? "no error"
         : error == cudaErrorInvalidValue ? "invalid argument"
                                          : "too many blocks in cooperative launch";
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
