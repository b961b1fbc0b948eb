// bfloat16: types and conversions by their CUDA names.
#pragma once

#include "dice/small_float.h"

using __nv_bfloat16 = dice::Small<dice::Bfloat16>;
using __nv_bfloat162 = dice::Pair<dice::Bfloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using __nv_bfloat16_raw = __nv_bfloat16::Raw;

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fffu)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001u)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7fu)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000u)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80u)

DICE_FN __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
DICE_FN __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
DICE_FN __nv_bfloat16 __float2bfloat16_rz(float x) { return dice::rounded<dice::Bfloat16>(x, 0); }
DICE_FN __nv_bfloat16 __float2bfloat16_rd(float x) { return dice::rounded<dice::Bfloat16>(x, -1); }
DICE_FN __nv_bfloat16 __float2bfloat16_ru(float x) { return dice::rounded<dice::Bfloat16>(x, 1); }
DICE_FN __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
DICE_FN float __bfloat162float(__nv_bfloat16 x) { return float(x); }
DICE_FN __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(float(x)); }
DICE_FN int __bfloat162int_rn(__nv_bfloat16 x) { return dice::to_integer<int>(::rintf(float(x))); }
DICE_FN int __bfloat162int_rz(__nv_bfloat16 x) { return dice::to_integer<int>(::truncf(float(x))); }
DICE_FN int __bfloat162int_rd(__nv_bfloat16 x) { return dice::to_integer<int>(::floorf(float(x))); }
DICE_FN int __bfloat162int_ru(__nv_bfloat16 x) { return dice::to_integer<int>(::ceilf(float(x))); }
DICE_FN __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __nv_bfloat16(float(x)); }
DICE_FN unsigned __bfloat162uint_rn(__nv_bfloat16 x) { return dice::to_integer<unsigned>(::rintf(float(x))); }
DICE_FN unsigned __bfloat162uint_rz(__nv_bfloat16 x) { return dice::to_integer<unsigned>(::truncf(float(x))); }
DICE_FN unsigned __bfloat162uint_rd(__nv_bfloat16 x) { return dice::to_integer<unsigned>(::floorf(float(x))); }
DICE_FN unsigned __bfloat162uint_ru(__nv_bfloat16 x) { return dice::to_integer<unsigned>(::ceilf(float(x))); }
DICE_FN __nv_bfloat16 __short2bfloat16_rn(short x) { return __nv_bfloat16(float(x)); }
DICE_FN short __bfloat162short_rn(__nv_bfloat16 x) { return dice::to_integer<short>(::rintf(float(x))); }
DICE_FN short __bfloat162short_rz(__nv_bfloat16 x) { return dice::to_integer<short>(::truncf(float(x))); }
DICE_FN short __bfloat162short_rd(__nv_bfloat16 x) { return dice::to_integer<short>(::floorf(float(x))); }
DICE_FN short __bfloat162short_ru(__nv_bfloat16 x) { return dice::to_integer<short>(::ceilf(float(x))); }
DICE_FN __nv_bfloat16 __ushort2bfloat16_rn(unsigned short x) { return __nv_bfloat16(float(x)); }
DICE_FN unsigned short __bfloat162ushort_rn(__nv_bfloat16 x) { return dice::to_integer<unsigned short>(::rintf(float(x))); }
DICE_FN unsigned short __bfloat162ushort_rz(__nv_bfloat16 x) { return dice::to_integer<unsigned short>(::truncf(float(x))); }
DICE_FN unsigned short __bfloat162ushort_rd(__nv_bfloat16 x) { return dice::to_integer<unsigned short>(::floorf(float(x))); }
DICE_FN unsigned short __bfloat162ushort_ru(__nv_bfloat16 x) { return dice::to_integer<unsigned short>(::ceilf(float(x))); }
DICE_FN __nv_bfloat16 __ll2bfloat16_rn(long long x) { return __nv_bfloat16(float(x)); }
DICE_FN long long __bfloat162ll_rn(__nv_bfloat16 x) { return dice::to_integer<long long>(::rintf(float(x))); }
DICE_FN long long __bfloat162ll_rz(__nv_bfloat16 x) { return dice::to_integer<long long>(::truncf(float(x))); }
DICE_FN long long __bfloat162ll_rd(__nv_bfloat16 x) { return dice::to_integer<long long>(::floorf(float(x))); }
DICE_FN long long __bfloat162ll_ru(__nv_bfloat16 x) { return dice::to_integer<long long>(::ceilf(float(x))); }
DICE_FN __nv_bfloat16 __ull2bfloat16_rn(unsigned long long x) { return __nv_bfloat16(float(x)); }
DICE_FN unsigned long long __bfloat162ull_rn(__nv_bfloat16 x) { return dice::to_integer<unsigned long long>(::rintf(float(x))); }
DICE_FN unsigned long long __bfloat162ull_rz(__nv_bfloat16 x) { return dice::to_integer<unsigned long long>(::truncf(float(x))); }
DICE_FN unsigned long long __bfloat162ull_rd(__nv_bfloat16 x) { return dice::to_integer<unsigned long long>(::floorf(float(x))); }
DICE_FN unsigned long long __bfloat162ull_ru(__nv_bfloat16 x) { return dice::to_integer<unsigned long long>(::ceilf(float(x))); }
DICE_FN unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
DICE_FN short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.bits); }
DICE_FN __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16(uint16_t(x), 0); }
DICE_FN __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16(uint16_t(x), 0); }
DICE_FN __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
DICE_FN __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
DICE_FN __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
DICE_FN float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
DICE_FN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
DICE_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
DICE_FN __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
DICE_FN __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
DICE_FN __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
DICE_FN __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
DICE_FN __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
DICE_FN __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
DICE_FN __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
