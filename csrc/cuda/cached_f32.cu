// The objective with a cached teacher, float arithmetic.
#include "objective.cuh"

namespace fedasd::cuda {
template Kernel<Parameters<float>> objective_of<float, true>(int64_t, bool, Rows);
}  // namespace fedasd::cuda
