// The part of namespace std that nvcc lets device code use. The small one here costs nothing; nvrtc.py asks for CCCL's,
// 0.3-0.7 s of headers, with DICE_FULL_STD when a source needs more.
#pragma once
#ifdef DICE_FULL_STD
#include <cuda/std/array>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
namespace std {
using namespace ::cuda::std;
}
#else
namespace std {
template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  using value_type = T;
  using type = integral_constant;
  __host__ __device__ constexpr operator T() const { return v; }
};
template <bool v> using bool_constant = integral_constant<bool, v>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool c, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool c, class A, class B> using conditional_t = typename conditional<c, A, B>::type;
template <bool c, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool c, class T = void> using enable_if_t = typename enable_if<c, T>::type;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_cv { using type = T; };
template <class T> struct remove_cv<const T> { using type = T; };
template <class T> struct remove_cv<volatile T> { using type = T; };
template <class T> struct remove_cv<const volatile T> { using type = T; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using decay_t = remove_cv_t<remove_reference_t<T>>;
template <class T> struct is_floating_point : bool_constant<is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>> {};
template <class T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> struct is_integral : false_type {};
template <class T> inline constexpr bool is_integral_v = is_integral<remove_cv_t<T>>::value;
template <class T> struct numeric_limits;
#define DICE_INTEGRAL(T, least, most)                                      \
  template <> struct is_integral<T> : true_type {};                        \
  template <> struct numeric_limits<T> {                                   \
    static constexpr bool is_specialized = true, is_integer = true;        \
    __host__ __device__ static constexpr T min() { return least; }         \
    __host__ __device__ static constexpr T lowest() { return least; }      \
    __host__ __device__ static constexpr T max() { return most; }          \
  };
DICE_INTEGRAL(bool, false, true)
DICE_INTEGRAL(char, SCHAR_MIN, SCHAR_MAX)
DICE_INTEGRAL(signed char, SCHAR_MIN, SCHAR_MAX)
DICE_INTEGRAL(unsigned char, 0, UCHAR_MAX)
DICE_INTEGRAL(short, SHRT_MIN, SHRT_MAX)
DICE_INTEGRAL(unsigned short, 0, USHRT_MAX)
DICE_INTEGRAL(int, INT_MIN, INT_MAX)
DICE_INTEGRAL(unsigned int, 0, UINT_MAX)
DICE_INTEGRAL(long, LONG_MIN, LONG_MAX)
DICE_INTEGRAL(unsigned long, 0, ULONG_MAX)
DICE_INTEGRAL(long long, LLONG_MIN, LLONG_MAX)
DICE_INTEGRAL(unsigned long long, 0, ULLONG_MAX)
#undef DICE_INTEGRAL
#define DICE_FLOATING(T, least, most, step, inf, nan)                      \
  template <> struct numeric_limits<T> {                                   \
    static constexpr bool is_specialized = true, is_integer = false;       \
    __host__ __device__ static constexpr T min() { return least; }         \
    __host__ __device__ static constexpr T lowest() { return -most; }      \
    __host__ __device__ static constexpr T max() { return most; }          \
    __host__ __device__ static constexpr T epsilon() { return step; }      \
    __device__ static T infinity() { return inf; }                         \
    __device__ static T quiet_NaN() { return nan; }                        \
  };
DICE_FLOATING(float, 1.17549435e-38F, 3.40282347e+38F, 1.19209290e-7F, INFINITY, NAN)
DICE_FLOATING(double, 2.2250738585072014e-308, 1.7976931348623157e+308, 2.2204460492503131e-16, HUGE_VAL, double(NAN))
#undef DICE_FLOATING
}  // namespace std
#endif

namespace std {
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ void swap(T& a, T& b) {
  T kept = a;
  a = b;
  b = kept;
}
#define DICE_UNARY(name)                                                   \
  __device__ inline float name(float x) { return ::name(x); }              \
  __device__ inline double name(double x) { return ::name(x); }            \
  __device__ inline double name(int x) { return ::name(double(x)); }
DICE_UNARY(sqrt)
DICE_UNARY(cbrt)
DICE_UNARY(exp)
DICE_UNARY(exp2)
DICE_UNARY(expm1)
DICE_UNARY(log)
DICE_UNARY(log2)
DICE_UNARY(log10)
DICE_UNARY(log1p)
DICE_UNARY(sin)
DICE_UNARY(cos)
DICE_UNARY(tan)
DICE_UNARY(asin)
DICE_UNARY(acos)
DICE_UNARY(atan)
DICE_UNARY(sinh)
DICE_UNARY(cosh)
DICE_UNARY(tanh)
DICE_UNARY(erf)
DICE_UNARY(erfc)
DICE_UNARY(floor)
DICE_UNARY(ceil)
DICE_UNARY(round)
DICE_UNARY(trunc)
DICE_UNARY(rint)
DICE_UNARY(nearbyint)
DICE_UNARY(fabs)
#undef DICE_UNARY
#define DICE_BINARY(name)                                                                         \
  __device__ inline float name(float a, float b) { return ::name(a, b); }                         \
  __device__ inline double name(double a, double b) { return ::name(a, b); }                      \
  __device__ inline double name(double a, int b) { return ::name(a, double(b)); }                 \
  __device__ inline double name(float a, double b) { return ::name(double(a), b); }               \
  __device__ inline double name(double a, float b) { return ::name(a, double(b)); }               \
  __device__ inline double name(float a, int b) { return ::name(double(a), double(b)); }
DICE_BINARY(pow)
DICE_BINARY(fmod)
DICE_BINARY(atan2)
DICE_BINARY(hypot)
DICE_BINARY(fmax)
DICE_BINARY(fmin)
#undef DICE_BINARY
__device__ inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ inline double fma(double a, double b, double c) { return ::fma(a, b, c); }
__device__ inline float abs(float x) { return ::fabsf(x); }
__device__ inline double abs(double x) { return ::fabs(x); }
__device__ inline int abs(int x) { return x < 0 ? -x : x; }
__device__ inline long abs(long x) { return x < 0 ? -x : x; }
__device__ inline long long abs(long long x) { return x < 0 ? -x : x; }
#define DICE_TEST(name)                                                    \
  __device__ inline bool name(float x) { return ::name(x); }               \
  __device__ inline bool name(double x) { return ::name(x); }
DICE_TEST(isnan)
DICE_TEST(isinf)
DICE_TEST(isfinite)
#undef DICE_TEST
}  // namespace std
