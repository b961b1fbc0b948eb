// Execution and memory spaces. One block runs at a time in one thread, so a block's shared memory is static storage.
#pragma once

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __constant__ __attribute__((used)) // written from outside: no constant to the compiler
#define __managed__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ /* beside `inline` a second one would be an error */
#define __inline_hint__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __block_size__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __nv_pure__
#define C10_DEVICE
#define C10_HOST_DEVICE
#define C10_LAUNCH_BOUNDS_1(...)
#define C10_LAUNCH_BOUNDS_2(...)
#define GPU_LAMBDA
#define C10_LAMBDA

// A function's calls are spelled out where it stands; glibc declares some of these names with C linkage.
#define DICE_C extern "C" inline __attribute__((always_inline))
#define DICE_FN inline __attribute__((always_inline))
