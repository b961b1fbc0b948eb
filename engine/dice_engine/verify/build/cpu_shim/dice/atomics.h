// Atomics: threads take turns only where they wait, so a plain read and write is indivisible.
#pragma once

#define DICE_ATOMIC(name, type, expression)                                    \
  DICE_FN type name(type* address, type value) {                               \
    DICE_QUIET                                                                 \
    type old = *address;                                                       \
    *address = (expression);                                                   \
    return old;                                                                \
  }                                                                            \
  DICE_FN type name##_block(type* address, type value) { return name(address, value); } \
  DICE_FN type name##_system(type* address, type value) { return name(address, value); }

#define DICE_ATOMIC_INTEGERS(name, expression) \
  DICE_ATOMIC(name, int, expression)           \
  DICE_ATOMIC(name, unsigned, expression)      \
  DICE_ATOMIC(name, unsigned long long, expression)

DICE_ATOMIC(atomicAdd, int, int(unsigned(old) + unsigned(value)))
DICE_ATOMIC(atomicAdd, unsigned, old + value)
DICE_ATOMIC(atomicAdd, unsigned long long, old + value)
DICE_ATOMIC(atomicAdd, float, old + value)
DICE_ATOMIC(atomicAdd, double, old + value)
DICE_ATOMIC(atomicSub, int, int(unsigned(old) - unsigned(value)))
DICE_ATOMIC(atomicSub, unsigned, old - value)
DICE_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
DICE_ATOMIC(atomicMin, long long, old < value ? old : value)
DICE_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
DICE_ATOMIC(atomicMax, long long, old > value ? old : value)
DICE_ATOMIC_INTEGERS(atomicAnd, old & value)
DICE_ATOMIC_INTEGERS(atomicOr, old | value)
DICE_ATOMIC_INTEGERS(atomicXor, old ^ value)
DICE_ATOMIC_INTEGERS(atomicExch, value)
DICE_ATOMIC(atomicExch, float, value)
DICE_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
DICE_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)

#define DICE_CAS(type)                                                                                  \
  DICE_FN type atomicCAS(type* address, type compare, type value) {                                     \
    DICE_QUIET                                                                                          \
    type old = *address;                                                                                \
    if (old == compare) *address = value;                                                               \
    return old;                                                                                         \
  }                                                                                                     \
  DICE_FN type atomicCAS_block(type* a, type compare, type value) { return atomicCAS(a, compare, value); } \
  DICE_FN type atomicCAS_system(type* a, type compare, type value) { return atomicCAS(a, compare, value); }
DICE_CAS(int)
DICE_CAS(unsigned)
DICE_CAS(unsigned long long)
DICE_CAS(unsigned short)

DICE_FN float2 atomicAdd(float2* address, float2 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
DICE_FN float4 atomicAdd(float4* address, float4 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
          atomicAdd(&address->w, value.w)};
}

#undef DICE_ATOMIC
#undef DICE_ATOMIC_INTEGERS
#undef DICE_CAS

DICE_FN void __threadfence() { asm volatile("" ::: "memory"); }
DICE_FN void __threadfence_block() { asm volatile("" ::: "memory"); }
DICE_FN void __threadfence_system() { asm volatile("" ::: "memory"); }
