// torch's thread pool for our loops, with any compiler.
#pragma once

#include <ATen/Parallel.h>

#if !defined(_OPENMP)
#include <torch/csrc/stable/c/shim.h>

#include <atomic>
#include <exception>
#endif

#include "../cpu/parallel.h"

namespace fedasd {

#if defined(_OPENMP)
using at::parallel_for;
#else
// at::parallel_for is a template: without -fopenmp it is a plain loop, and clang's -fopenmp calls a library that torch
// does not have.  torch's own instance of it, in its C interface, is compiled with what torch has.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& f) {
  struct Call {
    const F& f;
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
    std::exception_ptr error = nullptr;
  } call{f};
  // An exception must not cross the C interface: it would lose its type.
  auto run = [](int64_t from, int64_t to, void* context) {
    auto& call = *static_cast<Call*>(context);
    try {
      call.f(from, to);
    } catch (...) {
      if (!call.failed.test_and_set()) call.error = std::current_exception();
    }
  };
  TORCH_CHECK(torch_parallel_for(begin, end, grain, run, &call) == 0, "torch's thread pool failed");
  if (call.error) std::rethrow_exception(call.error);
}
#endif

// The pool as the CPU kernels take it.
inline cpu::Parallel parallel() {
  cpu::Parallel p;
  p.threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  p.run = [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
    parallel_for(0, n, grain, f);
  };
  return p;
}

}  // namespace fedasd
