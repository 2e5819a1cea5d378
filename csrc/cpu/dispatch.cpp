// Chooses the instruction set of the CPU kernels at run time.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "batch.h"

namespace fedasd::cpu {

namespace generic {
extern const Kernels table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

// Best first.  The CPU tests include the operating system's support for the wide registers.
const Kernels* best(const char* wanted) {
  auto allowed = [&](const Kernels& k) { return !wanted || std::strcmp(wanted, k.name) == 0; };
#if defined(__x86_64__)
  if (allowed(avx512::table) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return &avx512::table;
  if (allowed(avx2::table) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return &avx2::table;
#endif
  return allowed(generic::table) ? &generic::table : nullptr;
}

std::atomic<const Kernels*>& active() {
  static std::atomic<const Kernels*> table = [] {
    const Kernels* wanted = best(std::getenv("FEDASD_CPU_CAPABILITY"));
    return wanted ? wanted : best(nullptr);
  }();
  return table;
}

}  // namespace

const Kernels& kernels() { return *active().load(std::memory_order_relaxed); }

bool select_kernels(const char* name) {
  const Kernels* wanted = best(name);
  if (wanted) active().store(wanted, std::memory_order_relaxed);
  return wanted != nullptr;
}

}  // namespace fedasd::cpu
