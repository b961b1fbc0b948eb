// half precision: types and conversions by their CUDA names.
#pragma once

#include "dice/small_float.h"

using __half = dice::Small<dice::Half>;
using __half2 = dice::Pair<dice::Half>;
using half = __half;
using half2 = __half2;
using __half_raw = __half::Raw;

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00u)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffu)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001u)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bffu)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00u)

DICE_FN __half __float2half(float x) { return __half(x); }
DICE_FN __half __float2half_rn(float x) { return __half(x); }
DICE_FN __half __float2half_rz(float x) { return dice::rounded<dice::Half>(x, 0); }
DICE_FN __half __float2half_rd(float x) { return dice::rounded<dice::Half>(x, -1); }
DICE_FN __half __float2half_ru(float x) { return dice::rounded<dice::Half>(x, 1); }
DICE_FN __half __double2half(double x) { return __half(x); }
DICE_FN float __half2float(__half x) { return float(x); }
DICE_FN __half __int2half_rn(int x) { return __half(float(x)); }
DICE_FN int __half2int_rn(__half x) { return dice::to_integer<int>(::rintf(float(x))); }
DICE_FN int __half2int_rz(__half x) { return dice::to_integer<int>(::truncf(float(x))); }
DICE_FN int __half2int_rd(__half x) { return dice::to_integer<int>(::floorf(float(x))); }
DICE_FN int __half2int_ru(__half x) { return dice::to_integer<int>(::ceilf(float(x))); }
DICE_FN __half __uint2half_rn(unsigned x) { return __half(float(x)); }
DICE_FN unsigned __half2uint_rn(__half x) { return dice::to_integer<unsigned>(::rintf(float(x))); }
DICE_FN unsigned __half2uint_rz(__half x) { return dice::to_integer<unsigned>(::truncf(float(x))); }
DICE_FN unsigned __half2uint_rd(__half x) { return dice::to_integer<unsigned>(::floorf(float(x))); }
DICE_FN unsigned __half2uint_ru(__half x) { return dice::to_integer<unsigned>(::ceilf(float(x))); }
DICE_FN __half __short2half_rn(short x) { return __half(float(x)); }
DICE_FN short __half2short_rn(__half x) { return dice::to_integer<short>(::rintf(float(x))); }
DICE_FN short __half2short_rz(__half x) { return dice::to_integer<short>(::truncf(float(x))); }
DICE_FN short __half2short_rd(__half x) { return dice::to_integer<short>(::floorf(float(x))); }
DICE_FN short __half2short_ru(__half x) { return dice::to_integer<short>(::ceilf(float(x))); }
DICE_FN __half __ushort2half_rn(unsigned short x) { return __half(float(x)); }
DICE_FN unsigned short __half2ushort_rn(__half x) { return dice::to_integer<unsigned short>(::rintf(float(x))); }
DICE_FN unsigned short __half2ushort_rz(__half x) { return dice::to_integer<unsigned short>(::truncf(float(x))); }
DICE_FN unsigned short __half2ushort_rd(__half x) { return dice::to_integer<unsigned short>(::floorf(float(x))); }
DICE_FN unsigned short __half2ushort_ru(__half x) { return dice::to_integer<unsigned short>(::ceilf(float(x))); }
DICE_FN __half __ll2half_rn(long long x) { return __half(float(x)); }
DICE_FN long long __half2ll_rn(__half x) { return dice::to_integer<long long>(::rintf(float(x))); }
DICE_FN long long __half2ll_rz(__half x) { return dice::to_integer<long long>(::truncf(float(x))); }
DICE_FN long long __half2ll_rd(__half x) { return dice::to_integer<long long>(::floorf(float(x))); }
DICE_FN long long __half2ll_ru(__half x) { return dice::to_integer<long long>(::ceilf(float(x))); }
DICE_FN __half __ull2half_rn(unsigned long long x) { return __half(float(x)); }
DICE_FN unsigned long long __half2ull_rn(__half x) { return dice::to_integer<unsigned long long>(::rintf(float(x))); }
DICE_FN unsigned long long __half2ull_rz(__half x) { return dice::to_integer<unsigned long long>(::truncf(float(x))); }
DICE_FN unsigned long long __half2ull_rd(__half x) { return dice::to_integer<unsigned long long>(::floorf(float(x))); }
DICE_FN unsigned long long __half2ull_ru(__half x) { return dice::to_integer<unsigned long long>(::ceilf(float(x))); }
DICE_FN unsigned short __half_as_ushort(__half x) { return x.bits; }
DICE_FN short __half_as_short(__half x) { return short(x.bits); }
DICE_FN __half __ushort_as_half(unsigned short x) { return __half(uint16_t(x), 0); }
DICE_FN __half __short_as_half(short x) { return __half(uint16_t(x), 0); }
DICE_FN __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
DICE_FN __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
DICE_FN __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
DICE_FN float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
DICE_FN __half2 __halves2half2(__half x, __half y) { return {x, y}; }
DICE_FN __half2 __half2half2(__half x) { return {x, x}; }
DICE_FN __half2 make_half2(__half x, __half y) { return {x, y}; }
DICE_FN __half __low2half(__half2 v) { return v.x; }
DICE_FN __half __high2half(__half2 v) { return v.y; }
DICE_FN __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
DICE_FN __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
DICE_FN __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
DICE_FN __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
