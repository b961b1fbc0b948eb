// Linked into whole-source nvcc builds: counts and steers launches between nvcc's stubs and the CUDA runtime
// (ld --wrap), under the names of runtimes 12 and 13.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

struct DiceLaunches {
  long long count;
  int mode;     // 0 launch, 1 make launches fail, 2 leave them out
  int pending;  // the last failure's number
};

extern "C" {
__attribute__((visibility("default"))) DiceLaunches dice_launches;

#define DICE_WRAP(name, parameters, arguments)                            \
  __attribute__((weak)) cudaError_t __real_##name parameters;             \
  cudaError_t __wrap_##name parameters {                                  \
    ++dice_launches.count;                                                \
    if (dice_launches.mode == 2) return cudaSuccess;                      \
    cudaError_t status = cudaErrorLaunchFailure;                          \
    if (dice_launches.mode == 0 && __real_##name) status = __real_##name arguments; \
    if (status != cudaSuccess) dice_launches.pending = status;            \
    return status;                                                        \
  }
DICE_WRAP(__cudaLaunchKernel, (void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream),
          (kernel, grid, block, args, shared, stream))
DICE_WRAP(__cudaLaunchKernel_ptsz, (void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream),
          (kernel, grid, block, args, shared, stream))
DICE_WRAP(cudaLaunchKernel, (const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream),
          (kernel, grid, block, args, shared, stream))
DICE_WRAP(cudaLaunchCooperativeKernel,
          (const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream),
          (kernel, grid, block, args, shared, stream))
DICE_WRAP(cudaLaunchKernelExC, (const cudaLaunchConfig_t* config, const void* kernel, void** args), (config, kernel, args))
#undef DICE_WRAP

// The number of a launch's failure that the host code has not asked for, and the runtime forgets it too: whoever asks next
// is not told of it.
__attribute__((visibility("default"))) int dice_take_failure() {
  int failure = dice_launches.pending;
  dice_launches.pending = 0;
  if (failure) (void)cudaGetLastError();
  return failure;
}
}

// Pointers come from Python as integers, as the other build paths take them.
template <class T>
using DicePlain = std::conditional_t<std::is_pointer_v<T>, std::uintptr_t, T>;

template <class R, class... A>
auto dice_bindable(R (*function)(A...)) {
  return [function](DicePlain<A>... args) -> R { return function((A)args...); };
}
