// Arithmetic, bit and memory intrinsics. Fast forms (`__expf`) compute the accurate one: closer than a GPU, never farther.
#pragma once

// min and max exist for these pairs only, as in CUDA: a mixed pair beyond them is an ambiguous call there too.
#define DICE_MINMAX(result, a, b)                                                     \
  DICE_FN constexpr result min(a x, b y) { return (result)x < (result)y ? (result)x : (result)y; } \
  DICE_FN constexpr result max(a x, b y) { return (result)x > (result)y ? (result)x : (result)y; }
DICE_MINMAX(int, int, int)
DICE_MINMAX(unsigned, unsigned, unsigned)
DICE_MINMAX(unsigned, int, unsigned)
DICE_MINMAX(unsigned, unsigned, int)
DICE_MINMAX(long, long, long)
DICE_MINMAX(unsigned long, unsigned long, unsigned long)
DICE_MINMAX(unsigned long, long, unsigned long)
DICE_MINMAX(unsigned long, unsigned long, long)
DICE_MINMAX(long long, long long, long long)
DICE_MINMAX(unsigned long long, unsigned long long, unsigned long long)
DICE_MINMAX(unsigned long long, long long, unsigned long long)
DICE_MINMAX(unsigned long long, unsigned long long, long long)
#undef DICE_MINMAX
// Of a number and a NaN, CUDA gives the number.
#define DICE_MINMAX_REAL(result, a, b, low, high)               \
  DICE_FN result min(a x, b y) { return low((result)x, (result)y); } \
  DICE_FN result max(a x, b y) { return high((result)x, (result)y); }
DICE_MINMAX_REAL(float, float, float, __builtin_fminf, __builtin_fmaxf)
DICE_MINMAX_REAL(double, double, double, __builtin_fmin, __builtin_fmax)
DICE_MINMAX_REAL(double, float, double, __builtin_fmin, __builtin_fmax)
DICE_MINMAX_REAL(double, double, float, __builtin_fmin, __builtin_fmax)
#undef DICE_MINMAX_REAL
DICE_C unsigned umin(unsigned x, unsigned y) noexcept { return x < y ? x : y; }
DICE_C unsigned umax(unsigned x, unsigned y) noexcept { return x > y ? x : y; }

// ---- Real functions that C lacks ------------------------------------------------------------------------------
#define DICE_REAL(name, expression, expressionf)                       \
  DICE_C double name(double x) noexcept { return expression; }         \
  DICE_C float name##f(float x) noexcept { return expressionf; }       \
  DICE_FN float name(float x) { return name##f(x); }

namespace dice {
constexpr double kPi = 3.14159265358979323846;
inline double inverse_erf(double y) {
  if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? HUGE_VAL : y == -1.0 ? -HUGE_VAL : NAN;
  double w = -::log((1.0 - y) * (1.0 + y)), s = w < 5.0 ? w - 2.5 : ::sqrt(w) - 3.0, x;
  if (w < 5.0)
    x = 1.50140941 + s * (0.246640727 + s * (-0.00417768164 + s * (-0.00125372503 + s * (0.000218580870 +
        s * (-4.39150654e-06 + s * (-3.5233877e-06 + s * (3.43273939e-07 + s * 2.81022636e-08)))))));
  else
    x = 2.83297682 + s * (1.00167406 + s * (0.00943887047 + s * (-0.0076224613 + s * (0.00573950773 +
        s * (-0.00367342844 + s * (0.00134934322 + s * (0.000100950558 + s * -0.000200214257)))))));
  x *= y;
  for (int i = 0; i < 2; ++i) x -= (::erf(x) - y) / (2.0 / ::sqrt(kPi) * ::exp(-x * x));  // Newton, from 7 digits
  return x;
}
}  // namespace dice

DICE_REAL(rsqrt, 1.0 / ::sqrt(x), 1.0f / ::sqrtf(x))
DICE_REAL(rcbrt, 1.0 / ::cbrt(x), 1.0f / ::cbrtf(x))
DICE_REAL(sinpi, ::sin(dice::kPi * ::fmod(x, 2.0)), float(::sin(dice::kPi * ::fmod(double(x), 2.0))))
DICE_REAL(cospi, ::cos(dice::kPi * ::fmod(x, 2.0)), float(::cos(dice::kPi * ::fmod(double(x), 2.0))))
DICE_REAL(normcdf, 0.5 * ::erfc(-x * 0.70710678118654752440), float(0.5 * ::erfc(-double(x) * 0.70710678118654752440)))
DICE_REAL(erfcx, ::exp(x * x) * ::erfc(x), float(::exp(double(x) * x) * ::erfc(double(x))))
DICE_REAL(erfinv, dice::inverse_erf(x), float(dice::inverse_erf(x)))
DICE_REAL(erfcinv, dice::inverse_erf(1.0 - x), float(dice::inverse_erf(1.0 - double(x))))
DICE_REAL(normcdfinv, 1.41421356237309504880 * dice::inverse_erf(2.0 * x - 1.0),
          float(1.41421356237309504880 * dice::inverse_erf(2.0 * double(x) - 1.0)))
#undef DICE_REAL
namespace dice {
// Modified Bessel functions of the first kind by their series, whose terms are all positive.
inline double bessel_i(double x, int order) {
  double half = x / 2, term = order ? half : 1.0, sum = term;
  for (int k = 1; k < 500 && ::fabs(term) > 1e-17 * ::fabs(sum); ++k) sum += term *= half * half / (k * (k + double(order)));
  return sum;
}
}  // namespace dice
DICE_C double cyl_bessel_i0(double x) noexcept { return dice::bessel_i(x, 0); }
DICE_C double cyl_bessel_i1(double x) noexcept { return dice::bessel_i(x, 1); }
DICE_C float cyl_bessel_i0f(float x) noexcept { return float(dice::bessel_i(x, 0)); }
DICE_C float cyl_bessel_i1f(float x) noexcept { return float(dice::bessel_i(x, 1)); }
DICE_C float fdividef(float x, float y) noexcept { return x / y; }
DICE_C float norm3df(float x, float y, float z) noexcept { return ::sqrtf(x * x + y * y + z * z); }
DICE_C double norm3d(double x, double y, double z) noexcept { return ::sqrt(x * x + y * y + z * z); }
DICE_C float norm4df(float x, float y, float z, float w) noexcept { return ::sqrtf(x * x + y * y + z * z + w * w); }
DICE_C float rnorm3df(float x, float y, float z) noexcept { return 1.0f / norm3df(x, y, z); }
DICE_C float rhypotf(float x, float y) noexcept { return 1.0f / ::hypotf(x, y); }
DICE_C double rhypot(double x, double y) noexcept { return 1.0 / ::hypot(x, y); }
DICE_C void sincospi(double x, double* s, double* c) noexcept { *s = sinpi(x), *c = cospi(x); }
DICE_C float normf(int count, const float* values) noexcept {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += double(values[i]) * values[i];
  return float(::sqrt(sum));
}
DICE_C float rnormf(int count, const float* values) noexcept { return 1.0f / normf(count, values); }
DICE_C void sincospif(float x, float* s, float* c) noexcept { *s = sinpif(x), *c = cospif(x); }

// ---- Fast and directed-rounding forms -------------------------------------------------------------------------
DICE_C float __expf(float x) noexcept { return ::expf(x); }
DICE_C float __exp10f(float x) noexcept { return ::powf(10.0f, x); }
DICE_C float __logf(float x) noexcept { return ::logf(x); }
DICE_C float __log2f(float x) noexcept { return ::log2f(x); }
DICE_C float __log10f(float x) noexcept { return ::log10f(x); }
DICE_C float __powf(float x, float y) noexcept { return ::powf(x, y); }
DICE_C float __sinf(float x) noexcept { return ::sinf(x); }
DICE_C float __cosf(float x) noexcept { return ::cosf(x); }
DICE_C float __tanf(float x) noexcept { return ::tanf(x); }
DICE_C float __tanhf(float x) noexcept { return ::tanhf(x); }
DICE_C void __sincosf(float x, float* s, float* c) noexcept { *s = ::sinf(x), *c = ::cosf(x); }
DICE_FN float __fdividef(float x, float y) { return x / y; }
DICE_FN float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
DICE_FN float __frsqrt_rn(float x) { return float(1.0 / ::sqrt(double(x))); }

// Rounding modes other than nearest: one step off at most, which no tolerance of ours sees.
#define DICE_ROUNDED(mode)                                                              \
  DICE_FN float __fadd_##mode(float x, float y) { return x + y; }                       \
  DICE_FN float __fsub_##mode(float x, float y) { return x - y; }                       \
  DICE_FN float __fmul_##mode(float x, float y) { return x * y; }                       \
  DICE_FN float __fdiv_##mode(float x, float y) { return x / y; }                       \
  DICE_FN float __fmaf_##mode(float x, float y, float z) { return ::fmaf(x, y, z); }    \
  DICE_FN float __frcp_##mode(float x) { return 1.0f / x; }                             \
  DICE_FN float __fsqrt_##mode(float x) { return ::sqrtf(x); }                          \
  DICE_FN double __dadd_##mode(double x, double y) { return x + y; }                    \
  DICE_FN double __dsub_##mode(double x, double y) { return x - y; }                    \
  DICE_FN double __dmul_##mode(double x, double y) { return x * y; }                    \
  DICE_FN double __ddiv_##mode(double x, double y) { return x / y; }                    \
  DICE_FN double __fma_##mode(double x, double y, double z) { return ::fma(x, y, z); }  \
  DICE_FN double __drcp_##mode(double x) { return 1.0 / x; }                            \
  DICE_FN double __dsqrt_##mode(double x) { return ::sqrt(x); }                         \
  DICE_FN float __double2float_##mode(double x) { return float(x); }                    \
  DICE_FN float __int2float_##mode(int x) { return float(x); }                          \
  DICE_FN float __uint2float_##mode(unsigned x) { return float(x); }                    \
  DICE_FN float __ll2float_##mode(long long x) { return float(x); }                     \
  DICE_FN float __ull2float_##mode(unsigned long long x) { return float(x); }           \
  DICE_FN double __ll2double_##mode(long long x) { return double(x); }                  \
  DICE_FN double __ull2double_##mode(unsigned long long x) { return double(x); }
DICE_ROUNDED(rn)
DICE_ROUNDED(rz)
DICE_ROUNDED(ru)
DICE_ROUNDED(rd)
#undef DICE_ROUNDED
DICE_FN double __int2double_rn(int x) { return x; }
DICE_FN double __uint2double_rn(unsigned x) { return x; }

namespace dice {
// Saturates and sends NaN to 0, as the GPU's conversions do.
template <class I, class R>
DICE_FN I to_integer(R x) {
  constexpr I low = std::is_signed_v<I> ? I(I(1) << (sizeof(I) * 8 - 1)) : I(0), high = I(~low);
  return x != x ? I(0) : x >= R(high) ? high : x <= R(low) ? low : I(x);
}
}  // namespace dice
#define DICE_TO_INTEGER(mode, round, roundf)                                                              \
  DICE_FN int __float2int_##mode(float x) { return dice::to_integer<int>(roundf(x)); }                    \
  DICE_FN unsigned __float2uint_##mode(float x) { return dice::to_integer<unsigned>(roundf(x)); }         \
  DICE_FN long long __float2ll_##mode(float x) { return dice::to_integer<long long>(roundf(x)); }         \
  DICE_FN unsigned long long __float2ull_##mode(float x) { return dice::to_integer<unsigned long long>(roundf(x)); } \
  DICE_FN int __double2int_##mode(double x) { return dice::to_integer<int>(round(x)); }                   \
  DICE_FN unsigned __double2uint_##mode(double x) { return dice::to_integer<unsigned>(round(x)); }        \
  DICE_FN long long __double2ll_##mode(double x) { return dice::to_integer<long long>(round(x)); }        \
  DICE_FN unsigned long long __double2ull_##mode(double x) { return dice::to_integer<unsigned long long>(round(x)); }
DICE_TO_INTEGER(rn, ::rint, ::rintf)
DICE_TO_INTEGER(rz, ::trunc, ::truncf)
DICE_TO_INTEGER(ru, ::ceil, ::ceilf)
DICE_TO_INTEGER(rd, ::floor, ::floorf)
#undef DICE_TO_INTEGER

#define DICE_BITCAST(name, to, from)              \
  DICE_FN to name(from x) {                       \
    static_assert(sizeof(to) == sizeof(from));    \
    to result;                                    \
    memcpy(&result, &x, sizeof x);                \
    return result;                                \
  }
DICE_BITCAST(__float_as_int, int, float)
DICE_BITCAST(__float_as_uint, unsigned, float)
DICE_BITCAST(__int_as_float, float, int)
DICE_BITCAST(__uint_as_float, float, unsigned)
DICE_BITCAST(__double_as_longlong, long long, double)
DICE_BITCAST(__longlong_as_double, double, long long)
#undef DICE_BITCAST
DICE_FN int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
DICE_FN int __double2loint(double x) { return int(__double_as_longlong(x)); }
DICE_FN double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)(((unsigned long long)unsigned(high) << 32) | unsigned(low)));
}

// ---- Bits and integers ----------------------------------------------------------------------------------------
DICE_FN int __popc(unsigned x) { return __builtin_popcount(x); }
DICE_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
DICE_FN int __ffs(int x) { return __builtin_ffs(x); }
DICE_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
DICE_FN int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
DICE_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
DICE_FN unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
DICE_FN unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
DICE_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned nibble = selector >> (4 * i) & 0xf, byte = unsigned(bytes >> (8 * (nibble & 7))) & 0xff;
    result |= (nibble & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return result;
}
DICE_FN unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
DICE_FN unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
DICE_FN unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)high << 32 | low) << (shift < 32 ? shift : 32)) >> 32);
}
DICE_FN unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift < 32 ? shift : 32));
}
DICE_FN int __mul24(int x, int y) { return int((unsigned(x) << 8 >> 8) * (unsigned(y) << 8 >> 8)); }
DICE_FN unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
DICE_FN int __mulhi(int x, int y) { return int((long long)x * y >> 32); }
DICE_FN unsigned __umulhi(unsigned x, unsigned y) { return unsigned((unsigned long long)x * y >> 32); }
DICE_FN long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
DICE_FN unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
DICE_FN unsigned __sad(int x, int y, unsigned z) { return (x > y ? unsigned(x) - y : unsigned(y) - x) + z; }
DICE_FN unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }
DICE_FN int __hadd(int x, int y) { return int(((long long)x + y) >> 1); }
DICE_FN int __rhadd(int x, int y) { return int(((long long)x + y + 1) >> 1); }
DICE_FN unsigned __uhadd(unsigned x, unsigned y) { return unsigned(((unsigned long long)x + y) >> 1); }
DICE_FN unsigned __urhadd(unsigned x, unsigned y) { return unsigned(((unsigned long long)x + y + 1) >> 1); }
DICE_FN int __dp2a_lo(int x, int y, int sum) {
  return sum + int(short(x)) * int((signed char)y) + int(short(x >> 16)) * int((signed char)(y >> 8));
}
DICE_FN int __dp2a_hi(int x, int y, int sum) { return __dp2a_lo(x, y >> 16, sum); }
DICE_FN int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 32; i += 8) sum += int((signed char)(x >> i)) * int((signed char)(y >> i));
  return sum;
}
DICE_FN unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
  for (int i = 0; i < 32; i += 8) sum += (x >> i & 0xff) * (y >> i & 0xff);
  return sum;
}

// ---- Memory with cache hints, time, the end -------------------------------------------------------------------
#define DICE_LOAD(name)             \
  template <class T>                \
  DICE_FN T name(const T* address) { \
    return *address;                \
  }
DICE_LOAD(__ldg)
DICE_LOAD(__ldca)
DICE_LOAD(__ldcg)
DICE_LOAD(__ldcs)
DICE_LOAD(__ldlu)
DICE_LOAD(__ldcv)
#undef DICE_LOAD
#define DICE_STORE(name)                              \
  template <class T>                                  \
  DICE_FN void name(T* address, std::common_type_t<T> value) { \
    *address = value;                                 \
  }
DICE_STORE(__stwb)
DICE_STORE(__stcg)
DICE_STORE(__stcs)
DICE_STORE(__stwt)
#undef DICE_STORE
DICE_FN void __prefetch_global_l1(const void*) {}
DICE_FN void __prefetch_global_l2(const void*) {}
DICE_FN size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<size_t>(address); }
DICE_FN bool __isGlobal(const void*) { return true; }
DICE_FN bool __isShared(const void*) { return true; }
DICE_FN bool __isLocal(const void*) { return false; }
DICE_FN bool __isConstant(const void*) { return false; }

// Counters of some machines only give even numbers: here every bit moves, as on a GPU.
DICE_FN long long clock64() {
  static unsigned asked = 0;
  long long extra = ++asked * 2654435761u >> 28;
#if defined(__x86_64__)
  return (long long)__builtin_ia32_rdtsc() + extra;
#elif defined(__aarch64__)
  long long ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks + extra;
#else
  return asked * 16ll + extra;
#endif
}
DICE_FN void __nanosleep(unsigned) {}
[[noreturn]] DICE_FN void __trap() {
  snprintf(dice::error_text, sizeof dice::error_text, "the kernel called __trap()");
  dice::fail(dice::kTrap);
}
DICE_FN void __brkpt() {}
#define __builtin_assume(condition) ((condition) ? void() : __builtin_unreachable())
#define __assume(condition) __builtin_assume(condition)
