// Everything that a host translation unit may include, parsed once: dice_bind.h comes last, its macros are for the user's text.
#pragma once
#include "dice_torch.h"  // torch/types.h as toolchain.py slims it
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#if defined(DICE_CPU) || (__has_include(<cublas_v2.h>) && __has_include(<cusparse.h>) && __has_include(<cusolverDn.h>))
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "dice_bind.h"
