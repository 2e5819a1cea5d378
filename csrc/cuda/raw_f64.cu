// The objective with the teacher's logits, double arithmetic.
#include "objective.cuh"

namespace fedasd::cuda {
template Kernel<Parameters<double>> objective_of<double, false>(int64_t, bool, Rows);
}  // namespace fedasd::cuda
