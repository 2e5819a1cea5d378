// Building the teacher cache.
#include "select.cuh"

template fedasd::cuda::Kernel<fedasd::cuda::CacheParameters<float>> fedasd::cuda::build_cache_of<float>(int64_t);
template fedasd::cuda::Kernel<fedasd::cuda::CacheParameters<double>> fedasd::cuda::build_cache_of<double>(int64_t);
