// The CPU kernels compiled for AVX-512.
#if defined(__x86_64__)
#define FEDASD_ISA avx512
#define FEDASD_VECTOR_BYTES 64
#define FEDASD_TARGET "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c,bmi,bmi2"
#include "isa.inl"
#endif
