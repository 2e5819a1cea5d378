// The compiled kernels, and which of them a row of a given length takes.
#pragma once

#include <cstdint>

#include "parameters.cuh"

namespace fedasd::cuda {

template <class P>
struct Kernel {
  void (*run)(P);
  int lanes;  // threads that share a row; 0: all of the block
  int max_threads;
};

template <class T>
Kernel<Parameters<T>> cached_kernel(int64_t classes, bool kl);
template <class T>
Kernel<Parameters<T>> raw_kernel(int64_t classes, bool kl);
template <class T>
Kernel<CacheParameters<T>> cache_kernel(int64_t classes);

}  // namespace fedasd::cuda
