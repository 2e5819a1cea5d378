// The objective with a cached teacher, float arithmetic.
#include "select.cuh"

template fedasd::cuda::Kernel<fedasd::cuda::Parameters<float>> fedasd::cuda::objective_of<float, true>(int64_t, bool);
