// The kernels that benchmarks/sass.py looks at: kl with rows of one type, for the row lengths of the benchmarks.
#include "../csrc/cuda/objective.cuh"

namespace fedasd::cuda {

#define MAIN_KERNELS(Team, rows)                                                                 \
  template __global__ void objective_kernel<Team, true, true, rows>(const Parameters<Team::T>); \
  template __global__ void objective_kernel<Team, false, true, rows>(const Parameters<Team::T>);

using Lanes4 = WarpTeam<float, 4, 4>;
using Lanes16 = WarpTeam<float, 16, 8>;
using Lanes32 = WarpTeam<float, 32, 32>;
using Block = BlockTeam<float>;
MAIN_KERNELS(Lanes4, Rows::f32)
MAIN_KERNELS(Lanes16, Rows::f32)
MAIN_KERNELS(Lanes32, Rows::f32)
MAIN_KERNELS(Block, Rows::f32)
MAIN_KERNELS(Block, Rows::bf16)

}  // namespace fedasd::cuda
