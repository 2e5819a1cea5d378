// The CPU kernels compiled for the baseline that every CPU of the architecture runs: SSE2 on x86-64, NEON on aarch64.
#define FEDASD_ISA generic
#define FEDASD_VECTOR_BYTES 16
#include "isa.inl"
