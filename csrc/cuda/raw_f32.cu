// The objective with the teacher's logits, float arithmetic.
#include "objective.cuh"

namespace fedasd::cuda {
template Kernel<Parameters<float>> objective_of<float, false>(int64_t, bool, Rows);
}  // namespace fedasd::cuda
