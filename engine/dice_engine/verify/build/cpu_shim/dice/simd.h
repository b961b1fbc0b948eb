// Two 16-bit or four 8-bit numbers in one word.
#pragma once

namespace dice {
template <class T, class F>
DICE_FN unsigned by_part(unsigned a, unsigned b, F combine) {
  constexpr int bits = sizeof(T) * 8;
  unsigned result = 0;
  for (int at = 0; at < 32; at += bits) {
    unsigned part = unsigned(combine(int(T(a >> at)), int(T(b >> at))));
    result |= (part & ((1u << bits) - 1)) << at;
  }
  return result;
}
template <class T>
DICE_FN int saturated(int x) {
  constexpr int low = std::is_signed_v<T> ? -(1 << (sizeof(T) * 8 - 1)) : 0, high = low + (1 << (sizeof(T) * 8)) - 1;
  return x < low ? low : x > high ? high : x;
}
}  // namespace dice

// `u` and `s` forms read their parts as unsigned or signed numbers; `T` is the part's type in the expression.
#define DICE_PARTS(name, two, four, expression)                                             \
  DICE_FN unsigned name##2(unsigned a, unsigned b) {                                        \
    using T = two;                                                                          \
    return dice::by_part<T>(a, b, [](int x, int y) -> int { return expression; });          \
  }                                                                                         \
  DICE_FN unsigned name##4(unsigned a, unsigned b) {                                        \
    using T = four;                                                                         \
    return dice::by_part<T>(a, b, [](int x, int y) -> int { return expression; });          \
  }
#define DICE_UNSIGNED(name, expression) DICE_PARTS(name, unsigned short, unsigned char, expression)
#define DICE_SIGNED(name, expression) DICE_PARTS(name, short, signed char, expression)
DICE_UNSIGNED(__vadd, x + y)
DICE_UNSIGNED(__vsub, x - y)
DICE_UNSIGNED(__vaddus, dice::saturated<T>(x + y))
DICE_UNSIGNED(__vsubus, dice::saturated<T>(x - y))
DICE_SIGNED(__vaddss, dice::saturated<T>(x + y))
DICE_SIGNED(__vsubss, dice::saturated<T>(x - y))
DICE_UNSIGNED(__vminu, x < y ? x : y)
DICE_UNSIGNED(__vmaxu, x > y ? x : y)
DICE_SIGNED(__vmins, x < y ? x : y)
DICE_SIGNED(__vmaxs, x > y ? x : y)
DICE_UNSIGNED(__vavgu, (x + y + 1) >> 1)
DICE_UNSIGNED(__vabsdiffu, x > y ? x - y : y - x)
DICE_UNSIGNED(__vcmpeq, x == y ? -1 : 0)
DICE_UNSIGNED(__vcmpne, x != y ? -1 : 0)
DICE_UNSIGNED(__vcmpgtu, x > y ? -1 : 0)
DICE_UNSIGNED(__vcmpltu, x < y ? -1 : 0)
DICE_SIGNED(__vcmpgts, x > y ? -1 : 0)
DICE_SIGNED(__vcmplts, x < y ? -1 : 0)
#undef DICE_SIGNED
#undef DICE_UNSIGNED
#undef DICE_PARTS
DICE_FN unsigned __vsadu4(unsigned a, unsigned b) {
  unsigned sum = 0;
  for (int at = 0; at < 32; at += 8) sum += unsigned(abs(int(a >> at & 0xff) - int(b >> at & 0xff)));
  return sum;
}
DICE_FN unsigned __vabs2(unsigned a) { return dice::by_part<short>(a, a, [](int x, int) { return x < 0 ? -x : x; }); }
DICE_FN unsigned __vabs4(unsigned a) { return dice::by_part<signed char>(a, a, [](int x, int) { return x < 0 ? -x : x; }); }
DICE_FN unsigned __vneg2(unsigned a) { return dice::by_part<short>(a, a, [](int x, int) { return -x; }); }
DICE_FN unsigned __vneg4(unsigned a) { return dice::by_part<signed char>(a, a, [](int x, int) { return -x; }); }

// The position of the offset-th set bit from `base` on: upwards for a positive offset, downwards for a negative one.
DICE_FN unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return mask >> (base & 31) & 1 ? base : 0xffffffffu;
  int step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -offset;
  for (int at = int(base & 31); at >= 0 && at < 32; at += step)
    if ((mask >> at & 1) && --left == 0) return unsigned(at);
  return 0xffffffffu;
}
