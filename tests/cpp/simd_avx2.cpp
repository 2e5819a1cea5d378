// The SIMD functions compiled for AVX2.
#if defined(__x86_64__)
#define FEDASD_ISA avx2
#define FEDASD_VECTOR_BYTES 32
#define FEDASD_TARGET "avx2,fma,f16c,bmi,bmi2"
#include "simd_isa.inl"
#endif
