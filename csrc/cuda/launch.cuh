// Launching a kernel, and how many of its blocks the device holds at once.
#pragma once

#include "platform.cuh"

#include <stdexcept>
#include <string>

namespace fedasd::cuda {

struct DeviceLimits {
  int64_t resident_blocks;  // of the kernel asked about
  bool cooperative;
};

#if defined(__CUDACC__)

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("fedasd_fast: ") + what + ": " + cudaGetErrorString(error));
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

template <class P>
void launch(void (*kernel)(P), int64_t blocks, int threads, bool cooperative, cudaStream_t stream, P parameters) {
  void* arguments[] = {&parameters};
  const auto run = reinterpret_cast<const void*>(kernel);
  const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
  check(cooperative ? cudaLaunchCooperativeKernel(run, grid, block, arguments, 0, stream)
                    : cudaLaunchKernel(run, grid, block, arguments, 0, stream),
        "launch");
}

#else  // the host executor

template <class P>
DeviceLimits device_limits(void (*)(P), int) {
  const host_cuda::Device& device = host_cuda::device();
  return {int64_t(device.multiprocessors) * device.blocks_per_multiprocessor, device.cooperative};
}

template <class P>
void launch(void (*kernel)(P), int64_t blocks, int threads, bool cooperative, cudaStream_t, P parameters) {
  host_cuda::launch(kernel, dim3(unsigned(blocks)), dim3(unsigned(threads)), cooperative, parameters);
}

#endif

}  // namespace fedasd::cuda
