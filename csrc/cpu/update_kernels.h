// Arguments of the CPU kernels of the client update: one client, and a range of its elements.
#pragma once

#include <cstdint>

#include "../update/problem.h"
#include "parallel.h"

namespace fedasd::cpu {

// One client of a LocalStep, or (w, saved, g and factor only) of an Ascent.
struct ClientUpdate {
  DType type = DType::f32;
  void *w = nullptr, *velocity = nullptr, *saved = nullptr;
  const void *g = nullptr, *linear = nullptr;
  double quadratic = 0, factor = 1, decay = 0, momentum = 0, lr = 0;
};

// One instruction set's compiled code.  Ranges of elements may run in any order and on any thread.
struct UpdateKernels {
  double (*squares)(const ClientUpdate&, int64_t begin, int64_t end);  // sum of u^2
  void (*step)(const ClientUpdate&, int64_t begin, int64_t end);
  void (*ascend)(const ClientUpdate&, int64_t begin, int64_t end);
  void (*accumulate)(const Accumulation&, int64_t begin, int64_t end);
};

// ||u||; `parallel` may be null.  The bits do not depend on threads.
double norm(const UpdateKernels&, const ClientUpdate&, int64_t size, const Parallel* parallel);

}  // namespace fedasd::cpu
