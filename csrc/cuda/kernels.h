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

// The .cu files hold these for float and double (select.cuh).
template <class T, bool cached>
Kernel<Parameters<T>> objective_of(int64_t classes, bool kl);
template <class T>
Kernel<CacheParameters<T>> build_cache_of(int64_t classes);

}  // namespace fedasd::cuda
