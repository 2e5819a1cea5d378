// The functions that -fsanitize=thread and -fsanitize=alignment,bounds make a kernel call, in place of the sanitizers'
// libraries.  The compiler assumes that they do not throw: fail() leaves the thread where it is.
#include "state.h"

using host_cuda::Memory;

#define HOST_CUDA_CODE __builtin_return_address(0)
#define HOST_CUDA_HOOK(name, bytes, write) \
  void name(void* p) { host_cuda::access(uintptr_t(p), bytes, write, Memory::plain, HOST_CUDA_CODE); }
#define HOST_CUDA_HOOKS(bytes)                               \
  HOST_CUDA_HOOK(__tsan_read##bytes, bytes, false)           \
  HOST_CUDA_HOOK(__tsan_write##bytes, bytes, true)           \
  HOST_CUDA_HOOK(__tsan_unaligned_read##bytes, bytes, false) \
  HOST_CUDA_HOOK(__tsan_unaligned_write##bytes, bytes, true)

namespace {

struct SourceLocation {
  const char* file;
  unsigned line, column;
};

host_cuda::Place place(void* data) {
  auto* location = static_cast<SourceLocation*>(data);
  return {location->file, int(location->line)};
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
HOST_CUDA_HOOKS(1)
HOST_CUDA_HOOKS(2)
HOST_CUDA_HOOKS(4)
HOST_CUDA_HOOKS(8)
HOST_CUDA_HOOKS(16)
void __tsan_read_range(void* p, unsigned long bytes) {
  host_cuda::access(uintptr_t(p), bytes, false, Memory::plain, HOST_CUDA_CODE);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  host_cuda::access(uintptr_t(p), bytes, true, Memory::plain, HOST_CUDA_CODE);
}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

// std::atomic and the like, in host code beside a kernel: nothing to check, but they have to work.
#define HOST_CUDA_AT(T) static_cast<volatile T*>(p)
#define HOST_CUDA_FETCH(bits, T, name)                               \
  T __tsan_atomic##bits##_fetch_##name(volatile void* p, T x, int) { \
    return __atomic_fetch_##name(HOST_CUDA_AT(T), x, 5);             \
  }
#define HOST_CUDA_EXCHANGE(bits, T, name)                                                          \
  bool __tsan_atomic##bits##_compare_exchange_##name(volatile void* p, void* old, T x, int, int) { \
    return __atomic_compare_exchange_n(HOST_CUDA_AT(T), static_cast<T*>(old), x, false, 5, 5);     \
  }
#define HOST_CUDA_ATOMICS(bits, T)                                                                                    \
  T __tsan_atomic##bits##_load(const volatile void* p, int) { return __atomic_load_n(HOST_CUDA_AT(const T), 5); }     \
  void __tsan_atomic##bits##_store(volatile void* p, T x, int) { __atomic_store_n(HOST_CUDA_AT(T), x, 5); }           \
  T __tsan_atomic##bits##_exchange(volatile void* p, T x, int) { return __atomic_exchange_n(HOST_CUDA_AT(T), x, 5); } \
  HOST_CUDA_FETCH(bits, T, add)                                                                                       \
  HOST_CUDA_FETCH(bits, T, sub)                                                                                       \
  HOST_CUDA_FETCH(bits, T, and)                                                                                       \
  HOST_CUDA_FETCH(bits, T, or)                                                                                        \
  HOST_CUDA_FETCH(bits, T, xor)                                                                                       \
  HOST_CUDA_EXCHANGE(bits, T, strong)                                                                                 \
  HOST_CUDA_EXCHANGE(bits, T, weak)                                                                                   \
  T __tsan_atomic##bits##_compare_exchange_val(volatile void* p, T old, T x, int, int) {                              \
    __atomic_compare_exchange_n(HOST_CUDA_AT(T), &old, x, false, 5, 5);                                               \
    return old;                                                                                                       \
  }
HOST_CUDA_ATOMICS(8, unsigned char)
HOST_CUDA_ATOMICS(16, unsigned short)
HOST_CUDA_ATOMICS(32, unsigned)
HOST_CUDA_ATOMICS(64, unsigned long)
void __tsan_atomic_thread_fence(int) {}

void __ubsan_handle_type_mismatch_v1(void* data, void* p) {
  if (host_cuda::state.current) host_cuda::fail(host_cuda::text(place(data)), "misaligned: access at %p", p);
}
void __ubsan_handle_out_of_bounds(void* data, void* index) {
  if (host_cuda::state.current)
    host_cuda::fail(host_cuda::text(place(data)), "out of bounds: index %zd of an array",
                    reinterpret_cast<ptrdiff_t>(index));
}

}  // extern "C"
