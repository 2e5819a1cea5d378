// Fibers: creating a stack and switching to it.
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(HOST_CUDA_UCONTEXT)
// Saves what a function must preserve, changes stacks, and restores the same from the other one.
extern "C" void host_cuda_switch(void** save, void* resume);
asm(R"(
  .text
  .p2align 4
  .type host_cuda_switch, @function
host_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size host_cuda_switch, . - host_cuda_switch
)");
#endif

namespace host_cuda {

Fiber::Fiber(int number) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, page + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);  // a stack that overflows stops here
  stack_ = static_cast<char*>(memory) + page;
  colour_ = size_t(number) % 64 * 64;  // else the same variable of all threads would share one set of the cache
}

Fiber::~Fiber() {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  if (stack_) munmap(stack_ - page, page + kStack);
}

void Fiber::prepare(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStack);  // an abandoned fiber leaves the red zones of its frames
  bottom_ = stack_;
  size_ = kStack;
#endif
#if defined(HOST_CUDA_UCONTEXT)
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStack - colour_;
  makecontext(&context_, entry, 0);
#else
  // Six registers, the address to return to, and its caller's: 16 bytes aligned before that, as after a call.
  void** top = reinterpret_cast<void**>(stack_ + kStack - colour_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#endif
}

// The sanitizer tells which stack was left.  The first time it is that of `main`, whose bounds nobody else knows.
void Fiber::entered([[maybe_unused]] Fiber& main) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (main.bottom_) return;
  main.bottom_ = bottom;
  main.size_ = size;
#endif
}

void Fiber::switch_to(Fiber& next) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, next.bottom_, next.size_);
#endif
#if defined(HOST_CUDA_UCONTEXT)
  swapcontext(&context_, &next.context_);
#else
  host_cuda_switch(&stack_pointer_, next.stack_pointer_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace host_cuda
