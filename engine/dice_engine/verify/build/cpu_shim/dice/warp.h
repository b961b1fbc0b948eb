// Barriers, shuffles and votes. `__builtin_LINE()` as a default argument is the line of the call: a barrier's identity.
#pragma once

DICE_FN void __syncthreads(int line = __builtin_LINE()) { dice::block_barrier(false, line); }
DICE_FN int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return dice::block_barrier(predicate != 0, line);
}
DICE_FN int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return dice::block_barrier(predicate != 0, line) != 0;
}
DICE_FN int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return dice::block_barrier(predicate == 0, line) == 0;
}
DICE_FN void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  dice::exchange(mask, 0, dice::kExchange, line);
}

namespace dice {

DICE_FN unsigned lane() { return current % 32; }

template <class T>
DICE_FN T shuffle(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a warp shuffle moves values of at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  unsigned own = lane();
  const Warp& warp = exchange(mask, bits, kExchange, line);
  bool there = warp.group[own] >> (source & 31) & 1;  // a lane that is not there: undefined, here one's own value
  T result;
  memcpy(&result, &warp.taken[there ? source & 31 : own], sizeof(T));
  return result;
}

DICE_FN unsigned vote(unsigned mask, bool predicate, int line) {
  unsigned own = lane(), bits = 0;
  const Warp& warp = exchange(mask, predicate, kExchange, line);
  for (uint32_t rest = warp.group[own]; rest; rest &= rest - 1) {
    int other = __builtin_ctz(rest);
    bits |= unsigned(warp.taken[other]) << other;
  }
  return bits;
}

template <class T, class F>
DICE_FN T reduce(unsigned mask, T value, int line, F combine) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  unsigned own = lane();
  const Warp& warp = exchange(mask, bits, kExchange, line);
  bool first = true;
  T result = value;
  for (uint32_t rest = warp.group[own]; rest; rest &= rest - 1) {
    T other;
    memcpy(&other, &warp.taken[__builtin_ctz(rest)], sizeof(T));
    result = first ? other : combine(result, other);
    first = false;
  }
  return result;
}

}  // namespace dice

template <class T>
DICE_FN T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  unsigned base = dice::lane() & ~(width - 1);
  return dice::shuffle(mask, value, base + (source & (width - 1)), line);
}
template <class T>
DICE_FN T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  int own = dice::lane(), base = own & ~(width - 1), source = own - int(delta);
  return dice::shuffle(mask, value, source < base ? own : source, line);
}
template <class T>
DICE_FN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  int own = dice::lane(), base = own & ~(width - 1), source = own + int(delta);
  return dice::shuffle(mask, value, source >= base + width ? own : source, line);
}
template <class T>
DICE_FN T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, int line = __builtin_LINE()) {
  int own = dice::lane(), base = own & ~(width - 1), source = own ^ lanes;
  return dice::shuffle(mask, value, source >= base + width ? own : source, line);
}

DICE_FN unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return dice::vote(mask, predicate != 0, line);
}
DICE_FN int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return dice::vote(mask, predicate != 0, line) != 0;
}
DICE_FN int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return dice::vote(mask, predicate == 0, line) == 0;
}
DICE_FN unsigned __activemask(int line = __builtin_LINE()) {
  unsigned own = dice::lane();
  return dice::exchange(0, 0, dice::kActive, line).group[own];
}
DICE_FN unsigned __activemask_alone() { return 1u << dice::lane(); }
template <class T>
DICE_FN unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  unsigned own = dice::lane(), equal = 0;
  const dice::Warp& warp = dice::exchange(mask, bits, dice::kExchange, line);
  for (uint32_t rest = warp.group[own]; rest; rest &= rest - 1) {
    int other = __builtin_ctz(rest);
    equal |= unsigned(warp.taken[other] == bits) << other;
  }
  return equal;
}
template <class T>
DICE_FN unsigned __match_all_sync(unsigned mask, T value, int* all, int line = __builtin_LINE()) {
  unsigned equal = __match_any_sync(mask, value, line);
  *all = equal == dice::warps[dice::current / 32].group[dice::lane()];
  return *all ? equal : 0;
}

#define DICE_REDUCE(name, type, expression)                                                \
  DICE_FN type name(unsigned mask, type value, int line = __builtin_LINE()) {              \
    return dice::reduce(mask, value, line, [](type a, type b) -> type { return expression; }); \
  }
DICE_REDUCE(__reduce_add_sync, unsigned, a + b)
DICE_REDUCE(__reduce_add_sync, int, int(unsigned(a) + unsigned(b)))
DICE_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
DICE_REDUCE(__reduce_min_sync, int, a < b ? a : b)
DICE_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
DICE_REDUCE(__reduce_max_sync, int, a > b ? a : b)
DICE_REDUCE(__reduce_and_sync, unsigned, a & b)
DICE_REDUCE(__reduce_or_sync, unsigned, a | b)
DICE_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef DICE_REDUCE
