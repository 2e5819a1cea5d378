// A fiber: code with a stack of its own that can be left and continued.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#define HOST_CUDA_UCONTEXT  // portable; two system calls a switch
#endif
#if defined(HOST_CUDA_UCONTEXT)
#include <ucontext.h>
#endif

namespace host_cuda {

class Fiber {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kStack = 256 << 10;
#else
  static constexpr size_t kStack = 64 << 10;
#endif
  Fiber() = default;  // the caller's own stack, to come back to
  explicit Fiber(int number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void prepare(void (*entry)());  // which calls entered() first and never returns; whatever was there is forgotten
  static void entered(Fiber& main);
  void switch_to(Fiber& next);
  bool owns(uintptr_t address) const { return address - uintptr_t(stack_) < kStack; }

 private:
  char* stack_ = nullptr;
  size_t colour_ = 0;
#if defined(HOST_CUDA_UCONTEXT)
  ucontext_t context_;
#else
  void* stack_pointer_ = nullptr;
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  void* fake_stack_ = nullptr;
#endif
};

}  // namespace host_cuda
