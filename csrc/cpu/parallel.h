// The caller's thread pool, as the CPU kernels use it.
#pragma once

#include <cstdint>
#include <functional>

namespace fedasd::cpu {

// Splits [0, n) into ranges of at least `grain`, runs them, and returns when all are done.
struct Parallel {
  int threads = 1;
  std::function<void(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>&)> run;
};

}  // namespace fedasd::cpu
