// half and bfloat16: 16 stored bits, computed in float, rounded after each operation as the GPU does.
#pragma once

#include "cuda.h"

namespace dice {

struct Half {
  static float to_float(uint16_t bits) {
#if defined(__aarch64__)
    __fp16 value;
    memcpy(&value, &bits, 2);
    return float(value);
#else
    uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    if (exponent == 0) return __uint_as_float(sign | __float_as_uint(float(mantissa) * 0x1p-24f));
    return __uint_as_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13);
#endif
  }
  static uint16_t from_float(float value) {
    uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest >= 0x7f800000) return uint16_t(sign | (rest > 0x7f800000 ? 0x7fff : 0x7c00));
    if (rest >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds past 65504
    if (rest < 0x38800000) {  // below the smallest normal: adding 0.5 lets the FPU round at the right bit
      return uint16_t(sign | (__float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u));
    }
    return uint16_t(sign | ((rest - 0x38000000u + 0xfff + (rest >> 13 & 1)) >> 13));
  }
};

struct Bfloat16 {
  static float to_float(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }
  static uint16_t from_float(float value) {
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

template <class Format>
struct alignas(2) Small {
  uint16_t bits;

  // The bits without operators: `__half_raw`.
  struct Raw {
    uint16_t x;
  };

  Small() = default;
  Small(Raw raw) : bits(raw.x) {}
  operator Raw() const { return {bits}; }
  constexpr explicit Small(uint16_t bits, int) : bits(bits) {}
  Small(float value) : bits(Format::from_float(value)) {}
  Small(double value) : bits(Format::from_float(float(value))) {}
  Small(int value) : bits(Format::from_float(float(value))) {}
  Small(unsigned value) : bits(Format::from_float(float(value))) {}
  Small(long value) : bits(Format::from_float(float(value))) {}
  Small(unsigned long value) : bits(Format::from_float(float(value))) {}
  Small(long long value) : bits(Format::from_float(float(value))) {}
  Small(unsigned long long value) : bits(Format::from_float(float(value))) {}
  template <class Other>
  explicit Small(Small<Other> value) : Small(float(value)) {}
  operator float() const { return Format::to_float(bits); }
  explicit operator bool() const { return (bits & 0x7fff) != 0; }

#define DICE_OPERATOR(op)                                                                  \
  friend Small operator op(const Small& x, const Small& y) { return float(x) op float(y); } \
  friend Small& operator op##=(Small& x, const Small& y) { return x = x op y; }
  DICE_OPERATOR(+)
  DICE_OPERATOR(-)
  DICE_OPERATOR(*)
  DICE_OPERATOR(/)
#undef DICE_OPERATOR
#define DICE_OPERATOR(op) \
  friend bool operator op(const Small& x, const Small& y) { return float(x) op float(y); }
  DICE_OPERATOR(==)
  DICE_OPERATOR(!=)
  DICE_OPERATOR(<)
  DICE_OPERATOR(>)
  DICE_OPERATOR(<=)
  DICE_OPERATOR(>=)
#undef DICE_OPERATOR
  friend Small operator+(const Small& x) { return x; }
  friend Small operator-(const Small& x) { return Small(uint16_t(x.bits ^ 0x8000), 0); }
  friend Small& operator++(Small& x) { return x = x + Small(1.0f); }
  friend Small operator++(Small& x, int) {
    Small old = x;
    ++x;
    return old;
  }
  friend Small operator--(Small& x, int) {
    Small old = x;
    --x;
    return old;
  }
  friend Small& operator--(Small& x) { return x = x - Small(1.0f); }
};

// Rounded down (way < 0), up (way > 0) or toward zero.
template <class Format>
Small<Format> rounded(float x, int way) {
  Small<Format> near(x);
  float value = near;
  if (x != x || value == x) return near;
  if (way == 0) way = x > 0 ? -1 : 1;
  if ((way < 0) == (value < x)) return near;
  bool away = (value > 0) == (way > 0);
  if ((near.bits & 0x7fff) == 0) return Small<Format>(uint16_t(way < 0 ? 0x8001 : 1), 0);
  return Small<Format>(uint16_t(near.bits + (away ? 1 : -1)), 0);
}

template <class Format>
struct alignas(4) Pair {
  using Element = Small<Format>;
  Element x, y;

  Pair() = default;
  Pair(Element x, Element y) : x(x), y(y) {}

#define DICE_OPERATOR(op)                                                                       \
  friend Pair operator op(const Pair& a, const Pair& b) { return {a.x op b.x, a.y op b.y}; }     \
  friend Pair& operator op##=(Pair& a, const Pair& b) { return a = a op b; }
  DICE_OPERATOR(+)
  DICE_OPERATOR(-)
  DICE_OPERATOR(*)
  DICE_OPERATOR(/)
#undef DICE_OPERATOR
  friend Pair operator-(const Pair& a) { return {-a.x, -a.y}; }
  friend bool operator==(const Pair& a, const Pair& b) { return a.x == b.x && a.y == b.y; }
  friend bool operator!=(const Pair& a, const Pair& b) { return !(a == b); }
};

}  // namespace dice

#define DICE_FORMAT template <class F> DICE_FN
#define DICE_S dice::Small<F>
#define DICE_P dice::Pair<F>

// One operation on numbers, its twin on pairs.
#define DICE_UNARY(name, pair, expression)                          \
  DICE_FORMAT DICE_S name(DICE_S a) {                               \
    float x = a;                                                    \
    return DICE_S(float(expression));                               \
  }                                                                 \
  DICE_FORMAT DICE_P pair(DICE_P a) { return {name(a.x), name(a.y)}; }
#define DICE_BINARY(name, pair, expression)                         \
  DICE_FORMAT DICE_S name(DICE_S a, DICE_S b) {                     \
    float x = a, y = b;                                             \
    return DICE_S(float(expression));                               \
  }                                                                 \
  DICE_FORMAT DICE_P pair(DICE_P a, DICE_P b) { return {name(a.x, b.x), name(a.y, b.y)}; }
#define DICE_COMPARE(name, pair, expression)                        \
  DICE_FORMAT bool name(DICE_S a, DICE_S b) {                       \
    float x = a, y = b;                                             \
    return expression;                                              \
  }                                                                 \
  DICE_FORMAT DICE_P pair(DICE_P a, DICE_P b) { return {float(name(a.x, b.x)), float(name(a.y, b.y))}; }

DICE_BINARY(__hadd, __hadd2, x + y)
DICE_BINARY(__hsub, __hsub2, x - y)
DICE_BINARY(__hmul, __hmul2, x * y)
DICE_BINARY(__hdiv, __h2div, x / y)
DICE_BINARY(__hadd_rn, __hadd2_rn, x + y)
DICE_BINARY(__hsub_rn, __hsub2_rn, x - y)
DICE_BINARY(__hmul_rn, __hmul2_rn, x * y)
DICE_BINARY(__hadd_sat, __hadd2_sat, __saturatef(x + y))
DICE_BINARY(__hsub_sat, __hsub2_sat, __saturatef(x - y))
DICE_BINARY(__hmul_sat, __hmul2_sat, __saturatef(x * y))
DICE_BINARY(__hmin, __hmin2, ::fminf(x, y))
DICE_BINARY(__hmax, __hmax2, ::fmaxf(x, y))
DICE_BINARY(__hmin_nan, __hmin2_nan, x != x || y != y ? NAN : ::fminf(x, y))
DICE_BINARY(__hmax_nan, __hmax2_nan, x != x || y != y ? NAN : ::fmaxf(x, y))
DICE_UNARY(__hneg, __hneg2, -x)
DICE_UNARY(__habs, __habs2, ::fabsf(x))
DICE_UNARY(hsqrt, h2sqrt, ::sqrtf(x))
DICE_UNARY(hrsqrt, h2rsqrt, 1.0 / ::sqrt(double(x)))
DICE_UNARY(hrcp, h2rcp, 1.0f / x)
DICE_UNARY(hexp, h2exp, ::expf(x))
DICE_UNARY(hexp2, h2exp2, ::exp2f(x))
DICE_UNARY(hexp10, h2exp10, ::powf(10.0f, x))
DICE_UNARY(hlog, h2log, ::logf(x))
DICE_UNARY(hlog2, h2log2, ::log2f(x))
DICE_UNARY(hlog10, h2log10, ::log10f(x))
DICE_UNARY(hsin, h2sin, ::sinf(x))
DICE_UNARY(hcos, h2cos, ::cosf(x))
DICE_UNARY(htanh, h2tanh, ::tanhf(x))
DICE_UNARY(htanh_approx, h2tanh_approx, ::tanhf(x))
DICE_UNARY(hfloor, h2floor, ::floorf(x))
DICE_UNARY(hceil, h2ceil, ::ceilf(x))
DICE_UNARY(htrunc, h2trunc, ::truncf(x))
DICE_UNARY(hrint, h2rint, ::rintf(x))
DICE_COMPARE(__heq, __heq2, x == y)
DICE_COMPARE(__hne, __hne2, x != y)
DICE_COMPARE(__hlt, __hlt2, x < y)
DICE_COMPARE(__hle, __hle2, x <= y)
DICE_COMPARE(__hgt, __hgt2, x > y)
DICE_COMPARE(__hge, __hge2, x >= y)
DICE_COMPARE(__hequ, __hequ2, !(x < y || x > y))
DICE_COMPARE(__hneu, __hneu2, !(x == y))
DICE_COMPARE(__hltu, __hltu2, !(x >= y))
DICE_COMPARE(__hleu, __hleu2, !(x > y))
DICE_COMPARE(__hgtu, __hgtu2, !(x <= y))
DICE_COMPARE(__hgeu, __hgeu2, !(x < y))
#define DICE_BOTH(name, each) \
  DICE_FORMAT bool name(DICE_P a, DICE_P b) { return each(a.x, b.x) && each(a.y, b.y); }
DICE_BOTH(__hbne2, __hne)
DICE_BOTH(__hblt2, __hlt)
DICE_BOTH(__hble2, __hle)
DICE_BOTH(__hbgt2, __hgt)
DICE_BOTH(__hbge2, __hge)
#undef DICE_BOTH
#undef DICE_UNARY
#undef DICE_BINARY
#undef DICE_COMPARE

DICE_FORMAT DICE_S __hfma(DICE_S a, DICE_S b, DICE_S c) { return DICE_S(float(double(float(a)) * float(b) + float(c))); }
DICE_FORMAT DICE_P __hfma2(DICE_P a, DICE_P b, DICE_P c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
DICE_FORMAT DICE_S __hfma_relu(DICE_S a, DICE_S b, DICE_S c) { return __hmax(__hfma(a, b, c), DICE_S(0.0f)); }
DICE_FORMAT DICE_S __hfma_sat(DICE_S a, DICE_S b, DICE_S c) { return DICE_S(__saturatef(float(__hfma(a, b, c)))); }
DICE_FORMAT DICE_P __hfma2_relu(DICE_P a, DICE_P b, DICE_P c) {
  return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
DICE_FORMAT DICE_P __hfma2_sat(DICE_P a, DICE_P b, DICE_P c) {
  return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
DICE_FORMAT bool __hisnan(DICE_S a) { return float(a) != float(a); }
DICE_FORMAT int __hisinf(DICE_S a) { return ::fabsf(float(a)) == HUGE_VALF ? (float(a) > 0 ? 1 : -1) : 0; }
DICE_FORMAT bool __hbeq2(DICE_P a, DICE_P b) { return a.x == b.x && a.y == b.y; }
DICE_FORMAT float __low2float(DICE_P a) { return a.x; }
DICE_FORMAT float __high2float(DICE_P a) { return a.y; }
DICE_FORMAT DICE_P __lowhigh2highlow(DICE_P a) { return {a.y, a.x}; }
DICE_FORMAT DICE_S atomicAdd(DICE_S* address, DICE_S value) {
  DICE_QUIET
  DICE_S old = *address;
  *address = old + value;
  return old;
}
DICE_FORMAT DICE_P atomicAdd(DICE_P* address, DICE_P value) {
  DICE_QUIET
  DICE_P old = *address;
  *address = old + value;
  return old;
}
#undef DICE_FORMAT
#undef DICE_S
#undef DICE_P
