// The SIMD functions compiled for the architecture's baseline.
#define FEDASD_ISA generic
#define FEDASD_VECTOR_BYTES 16
#include "simd_isa.inl"
