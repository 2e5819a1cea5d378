// The functions of csrc/cpu/simd.inl and elements.inl as one instruction set compiles them.
#pragma once

#include <cstdint>

namespace fedasd::cpu {

struct Math {
  const char* name;
  void (*exp_f32)(float*, int64_t);
  void (*exp_f64)(double*, int64_t);
  void (*log_f32)(float*, int64_t);
  void (*log_f64)(double*, int64_t);
  void (*widen_f16)(const uint16_t*, int64_t stride, int64_t n, float*);
  void (*widen_bf16)(const uint16_t*, int64_t stride, int64_t n, float*);
  uint16_t (*narrow_f16)(float);
  uint16_t (*narrow_bf16)(float);
};

}  // namespace fedasd::cpu
