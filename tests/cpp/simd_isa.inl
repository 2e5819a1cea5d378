// The table of SIMD functions of one instruction set; included by simd_<isa>.cpp.  Like csrc/cpu/isa.inl: standard
// headers first, then the target is switched, so that no library function is compiled for a CPU that may not be this
// one.
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cpu/batch.h"
#include "simd_functions.h"

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

namespace fedasd::cpu::FEDASD_ISA {
namespace {
#include "cpu/simd.inl"

#include "cpu/elements.inl"

template <class Half>
void widen_bits(const uint16_t* from, int64_t stride, int64_t n, float* to) {
  static_assert(sizeof(Half) == sizeof(uint16_t), "a half is its bits");
  widen<float>(reinterpret_cast<const Half*>(from), stride, n, to);
}
template <class Half>
uint16_t narrow_bits(float x) {
  return from_float<Half, float>(x).bits;
}
}  // namespace

#define FEDASD_STRING_(x) #x
#define FEDASD_STRING(x) FEDASD_STRING_(x)
extern const Math math;
const Math math = {
    FEDASD_STRING(FEDASD_ISA), exp_nonpositive<float>, exp_nonpositive<double>, log<float>,       log<double>,
    widen_bits<f16>,           widen_bits<bf16>,       narrow_bits<f16>,        narrow_bits<bf16>};

}  // namespace fedasd::cpu::FEDASD_ISA

#if defined(FEDASD_TARGET)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
