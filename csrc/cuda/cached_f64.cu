// The objective with a cached teacher, double arithmetic.
#include "objective.cuh"

namespace fedasd::cuda {
template Kernel<Parameters<double>> objective_of<double, true>(int64_t, bool, Rows);
}  // namespace fedasd::cuda
