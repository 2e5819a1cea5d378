// FEDASD_HD: a function for the host and, under nvcc, for the GPU.
#pragma once

#if defined(__CUDACC__)
#define FEDASD_HD __host__ __device__ inline
#else
#define FEDASD_HD inline __attribute__((always_inline))
#endif
