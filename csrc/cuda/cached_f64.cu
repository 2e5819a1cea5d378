// The objective with a cached teacher, double arithmetic.
#include "select.cuh"

template fedasd::cuda::Kernel<fedasd::cuda::Parameters<double>> fedasd::cuda::objective_of<double, true>(int64_t, bool);
