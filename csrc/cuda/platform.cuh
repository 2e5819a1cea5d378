// CUDA as the kernels use it: intrinsics, arithmetic, launches.  The host executor (csrc/host_cuda) has headers of the
// same names, so that every other file here compiles unchanged with nvcc and with a C++ compiler.
#pragma once

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#if defined(__CUDACC__)
// Shared memory of a block.
#define FEDASD_SHARED(Type, name) __shared__ Type name
// The same, as many bytes as the launch says.
#define FEDASD_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
// Like torch's CUDA_KERNEL_ASSERT it stays in release builds: the launch fails with "device-side assert
// triggered", and the process must start anew.
#define FEDASD_DEVICE_ASSERT(condition) \
  ((condition) ? void() : __assert_fail(#condition, __FILE__, static_cast<unsigned>(__LINE__), __func__))
extern "C" __host__ __device__ __attribute__((noreturn)) void __assert_fail(const char*, const char*, unsigned,
                                                                            const char*) noexcept;
#endif

namespace fedasd::cuda {

// Products that must not melt into a fused multiply-add: equal logits of student and teacher then give
// equal products, and their difference is exactly 0.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// The same value, of which the compiler knows nothing: it cannot keep what it computed from the old one in
// registers for later.
__device__ __forceinline__ float forgotten(float x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+f"(x));
#endif
  return x;
}
__device__ __forceinline__ double forgotten(double x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+d"(x));
#endif
  return x;
}

// Overloads for the two types of arithmetic.  2^x of float is one instruction, with a relative error of at most 2^-22;
// results below 2^-126 become 0 (PTX ISA, ex2).  logf is within 1 unit in the last place (CUDA C++ Programming Guide,
// Mathematical Functions).
__device__ __forceinline__ float exp_2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return host_cuda::ex2_approx_ftz(x);
#endif
}
__device__ __forceinline__ float log_e(float x) { return logf(x); }
// Long code in double: one copy of it that is called keeps kernels small and their registers free.
__device__ __noinline__ inline double exp_2(double x) { return exp2(x); }
__device__ __noinline__ inline double log_e(double x) { return log(x); }
// Like the CPU's: a NaN never becomes the maximum, it spoils the sums instead.
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return b > a ? b : a; }
__device__ __forceinline__ int larger(int a, int b) { return b > a ? b : a; }

// Words through which blocks talk while they run: never torn, but in no order with other accesses.
__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* p) {
#if defined(__CUDACC__)
  uint64_t x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
#else
  return host_cuda::load_relaxed(p);
#endif
}
__device__ __forceinline__ void store_relaxed(uint64_t* p, uint64_t x) {
#if defined(__CUDACC__)
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
#else
  host_cuda::store_relaxed(p, x);
#endif
}

// How many blocks of a kernel the device holds at once.
struct DeviceLimits {
  int64_t resident_blocks;
  bool cooperative;
};

#if defined(__CUDACC__)

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("fedasd_fast: ") + what + ": " + cudaGetErrorString(error));
}

// Host arithmetic of well under a microsecond each, allowed during stream capture.
template <class P>
DeviceLimits device_limits(void (*kernel)(P), int threads) {
  int device = 0, multiprocessors = 0, cooperative = 0, blocks = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), "cudaDeviceGetAttribute");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0), "occupancy");
  return {int64_t(multiprocessors) * blocks, cooperative != 0};
}

// Bytes of shared memory that a block can have, static and dynamic, if its kernel asks for it.
inline int64_t shared_limit() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return bytes;
}

// `shared`: bytes of dynamic shared memory.
template <class P>
void launch(void (*kernel)(P), int64_t blocks, int threads, bool cooperative, cudaStream_t stream, P parameters,
            int64_t shared = 0) {
  void* arguments[] = {&parameters};
  const auto run = reinterpret_cast<const void*>(kernel);
  const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
  if (shared > 0)
    check(cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)), "cudaFuncSetAttribute");
  check(cooperative ? cudaLaunchCooperativeKernel(run, grid, block, arguments, size_t(shared), stream)
                    : cudaLaunchKernel(run, grid, block, arguments, size_t(shared), stream),
        "launch");
}

#else  // the host executor

template <class P>
DeviceLimits device_limits(void (*)(P), int) {
  const host_cuda::Device& device = host_cuda::device();
  return {int64_t(device.multiprocessors) * device.blocks_per_multiprocessor, device.cooperative};
}

inline int64_t shared_limit() { return int64_t(host_cuda::device().shared_per_block); }

template <class P>
void launch(void (*kernel)(P), int64_t blocks, int threads, bool cooperative, cudaStream_t, P parameters,
            int64_t shared = 0) {
  host_cuda::launch(kernel, dim3(unsigned(blocks)), dim3(unsigned(threads)), {cooperative, size_t(shared)}, parameters);
}

#endif

}  // namespace fedasd::cuda
