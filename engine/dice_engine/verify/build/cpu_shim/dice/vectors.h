// CUDA's vector types, dim3 and the make_ functions.
#pragma once

#define DICE_VECTOR(type, base, a1, a2, a4)                                                            \
  struct alignas(a1) type##1 { base x; };                                                              \
  struct alignas(a2) type##2 { base x, y; };                                                           \
  struct type##3 { base x, y, z; };                                                                    \
  struct alignas(a4) type##4 { base x, y, z, w; };                                                     \
  DICE_FN constexpr type##1 make_##type##1(base x) { return {x}; }                                     \
  DICE_FN constexpr type##2 make_##type##2(base x, base y) { return {x, y}; }                          \
  DICE_FN constexpr type##3 make_##type##3(base x, base y, base z) { return {x, y, z}; }               \
  DICE_FN constexpr type##4 make_##type##4(base x, base y, base z, base w) { return {x, y, z, w}; }

DICE_VECTOR(char, signed char, 1, 2, 4)
DICE_VECTOR(uchar, unsigned char, 1, 2, 4)
DICE_VECTOR(short, short, 2, 4, 8)
DICE_VECTOR(ushort, unsigned short, 2, 4, 8)
DICE_VECTOR(int, int, 4, 8, 16)
DICE_VECTOR(uint, unsigned int, 4, 8, 16)
DICE_VECTOR(long, long, 8, 16, 16)
DICE_VECTOR(ulong, unsigned long, 8, 16, 16)
DICE_VECTOR(longlong, long long, 8, 16, 16)
DICE_VECTOR(ulonglong, unsigned long long, 8, 16, 16)
DICE_VECTOR(float, float, 4, 8, 16)
DICE_VECTOR(double, double, 8, 16, 16)
#undef DICE_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
