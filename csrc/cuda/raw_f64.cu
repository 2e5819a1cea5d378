// The objective with the teacher's logits, double arithmetic.
#include "select.cuh"

template fedasd::cuda::Kernel<fedasd::cuda::Parameters<double>> fedasd::cuda::objective_of<double, false>(int64_t, bool);
