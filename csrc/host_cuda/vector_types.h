// CUDA's small vectors, with CUDA's alignment: the kernels' wide loads depend on it.
#pragma once

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define HOST_CUDA_VECTORS(Type, Element)                         \
  struct alignas(2 * sizeof(Element)) Type##2 { Element x, y; }; \
  inline Type##2 make_##Type##2(Element x, Element y) { return {x, y}; }
#define HOST_CUDA_VECTORS_OF_4(Type, Element)         \
  struct alignas(16) Type##4 { Element x, y, z, w; }; \
  inline Type##4 make_##Type##4(Element x, Element y, Element z, Element w) { return {x, y, z, w}; }
HOST_CUDA_VECTORS(int, int)
HOST_CUDA_VECTORS(uint, unsigned)
HOST_CUDA_VECTORS(float, float)
HOST_CUDA_VECTORS(double, double)
HOST_CUDA_VECTORS_OF_4(int, int)
HOST_CUDA_VECTORS_OF_4(uint, unsigned)
HOST_CUDA_VECTORS_OF_4(float, float)
#undef HOST_CUDA_VECTORS
#undef HOST_CUDA_VECTORS_OF_4
