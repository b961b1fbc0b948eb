// Half types for host code that only passes pointers to them: all arithmetic is in kernels.
#pragma once
struct alignas(2) __half {
  unsigned short bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;
