// Switch between two stacks: save the callee-saved registers, change the stack pointer, restore, return.
#pragma once

#if defined(__x86_64__) && !defined(DICE_UCONTEXT)

extern "C" void dice_switch(void** save, void* load) __attribute__((visibility("hidden")));
asm(R"(
.text
.p2align 4
.hidden dice_switch
.globl dice_switch
.type dice_switch, @function
dice_switch:
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
.size dice_switch, .-dice_switch
)");

namespace dice {
// The stack as `dice_switch` expects to find it: six registers, then where to go; aligned as after a call.
inline void* fresh_stack(char* top, void (*entry)()) {
  void** sp = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}
}  // namespace dice

#elif defined(__aarch64__) && !defined(DICE_UCONTEXT)

extern "C" void dice_switch(void** save, void* load) __attribute__((visibility("hidden")));
asm(R"(
.text
.p2align 4
.hidden dice_switch
.globl dice_switch
.type dice_switch, %function
dice_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size dice_switch, .-dice_switch
)");

namespace dice {
inline void* fresh_stack(char* top, void (*entry)()) {
  char* sp = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15)) - 160;
  memset(sp, 0, 160);
  memcpy(sp + 88, &entry, sizeof entry);  // x30, the address that `ret` goes to
  return sp;
}
}  // namespace dice

#else  // any other machine: ucontext, slower by two system calls a switch

#include <ucontext.h>

namespace dice {
struct Context {
  ucontext_t state;
};
inline void* fresh_stack(char* top, void (*entry)()) {
  constexpr size_t size = 96 * 1024;
  auto* context = reinterpret_cast<Context*>((reinterpret_cast<uintptr_t>(top) - sizeof(Context)) & ~uintptr_t(63));
  getcontext(&context->state);
  context->state.uc_stack.ss_sp = reinterpret_cast<char*>(context) - size;
  context->state.uc_stack.ss_size = size;
  context->state.uc_link = nullptr;
  makecontext(&context->state, entry, 0);
  return context;
}
}  // namespace dice
inline void dice_switch(void** save, void* load) {
  static dice::Context home;
  // A fiber's context lies at its own stack's top (`load` of the switch that started it); the scheduler's is `home`.
  static void* running = nullptr;
  dice::Context* from = running ? static_cast<dice::Context*>(running) : &home;
  *save = from;
  running = load == &home ? nullptr : load;
  swapcontext(&from->state, &static_cast<dice::Context*>(load)->state);
}

#endif
