// Compiles all CPU kernels for one instruction set; included last by kernels_<isa>.cpp.
//
// Every standard header comes before the target is switched: an inline library function compiled for
// AVX-512 could otherwise be the copy the linker keeps for the whole program.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "batch.h"

#if defined(__has_builtin)
#define FEDASD_HAS_SHUFFLE __has_builtin(__builtin_shufflevector)
#else
#define FEDASD_HAS_SHUFFLE 0
#endif

#if defined(FEDASD_TARGET)
#define FEDASD_PRAGMA_(text) _Pragma(#text)
#define FEDASD_PRAGMA(text) FEDASD_PRAGMA_(text)
#if defined(__clang__)
FEDASD_PRAGMA(clang attribute push(__attribute__((target(FEDASD_TARGET))), apply_to = function))
#else
#pragma GCC push_options
FEDASD_PRAGMA(GCC target(FEDASD_TARGET))
#endif
#endif

#include "../asd/formulas.h"  // for this target: its functions take vectors
#include "../update/formulas.h"

namespace fedasd::cpu::FEDASD_ISA {
namespace {
#include "simd.inl"

#include "lanes.inl"

#include "elements.inl"

#include "layout.inl"

// Up to here one row a lane is faster than classes across the lanes: measured with AVX-512 at 64 rows, twice as fast
// at 10 classes, even at 32.
template <class T>
constexpr int64_t kTransposedClasses = 2 * kLanes<T>;

#include "rows.inl"

#include "teacher_rows.inl"

#include "student_rows.inl"

#include "cross_entropy_rows.inl"

#include "client_loss.inl"

#include "update.inl"

#include "chain.inl"
}  // namespace

#define FEDASD_STRING_(x) #x
#define FEDASD_STRING(x) FEDASD_STRING_(x)
extern const Kernels table;
const Kernels table = {FEDASD_STRING(FEDASD_ISA),
                       teacher_rows,
                       normalise,
                       student_rows,
                       cross_entropy_rows,
                       loss,
                       cache_rows,
                       finish_cache,
                       {squares, step, ascend, accumulate},
                       {kLanes<float>, multiply<float>, activate<float>, transpose<float>, chain_rule<float>},
                       {kLanes<double>, multiply<double>, activate<double>, transpose<double>, chain_rule<double>}};

}  // namespace fedasd::cpu::FEDASD_ISA

#if defined(FEDASD_TARGET)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
