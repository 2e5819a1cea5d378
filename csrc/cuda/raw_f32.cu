// The objective with the teacher's logits, float arithmetic.
#include "select.cuh"

template fedasd::cuda::Kernel<fedasd::cuda::Parameters<float>> fedasd::cuda::objective_of<float, false>(int64_t, bool);
