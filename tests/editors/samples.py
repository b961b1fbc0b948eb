"""Files that the scenarios open, and what the scripted engine answers for their kernels."""

from __future__ import annotations

from typing import Any

SAXPY = """#include <cuda_runtime.h>

__global__ void axpb(float alpha, const float* lhs, const float* rhs, float* dst, int count) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) {
    dst[k] = alpha * lhs[k] + rhs[k];
  }
}

void run_axpb(float alpha, const float* lhs, const float* rhs, float* dst, int count, cudaStream_t st) {
  const int threads = 256;
  const int blocks = (count + threads - 1) / threads;
  axpb<<<blocks, threads, 0, st>>>(alpha, lhs, rhs, dst, count);
}
"""

FAST = """
  // one fused multiply-add; "\\n" stays an escape
  const int k = blockIdx.x * 256 + threadIdx.x;
  if (k < count) dst[k] = fmaf(alpha, lhs[k], rhs[k]);
"""
SLOWER = """
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
    dst[k] = alpha * lhs[k] + rhs[k];
"""
WRONG = "\n  dst[0] = alpha;\n"
BROKEN = "\n  int k = ;\n"

EMOJI_CRLF = (
    SAXPY.replace("#include", "// 活性化 😀 filée — λ·x\n#include")
    .replace("__global__", "/* 🔥🔥 */ __global__")
    .replace("{\n  int k", "{ // 😀\n  int k")
    .replace("\n", "\r\n")
)

IN_PYTHON = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
// 😀 count is any size
// @dice grid=(count+255)/256 block=256
// @dice in(lhs[count], rhs[count]) outt(dst[count])
// @dice sizes(count=100000; count=33)
__global__ void axpb(float alpha, const float* lhs, const float* rhs, float* dst, int count) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) {
    dst[k] = alpha * lhs[k] + rhs[k];  // "\\\\n"
  }
}

torch::Tensor run(torch::Tensor lhs, torch::Tensor rhs);
"""

ext = load_inline(name="axpb", cpp_sources="", cuda_sources=SOURCE, functions=["run"])
'''
"""``outt`` is a typing mistake: the diagnostic must stand on it."""

TYPING = SAXPY.replace("    dst[k] = alpha * lhs[k] + rhs[k];", "    ")
"""Where a person is about to write ``dst[k] =``."""

GHOSTS = [" alpha * lhs[k] + rhs[k];\n", " fmaf(alpha, lhs[k], rhs[k]);\n"]
"""What the engine continues a core with."""

SCRIPT: dict[str, Any] = {
    "cores": [WRONG, FAST, BROKEN, SLOWER],
    "verdicts": {
        FAST: {
            "verdict": "verified",
            "speedup": 2.314,
            "speedup_low": 2.2,
            "speedup_high": 2.4,
            "reference_ms": 0.2,
            "candidate_ms": 0.0864,
            "max_abs_err": 2.4e-7,
            "max_rel_err": 1.1e-7,
        },
        SLOWER: {
            "verdict": "no_gain",
            "speedup": 0.94,
            "speedup_low": 0.91,
            "speedup_high": 0.98,
            "reference_ms": 0.2,
            "candidate_ms": 0.213,
        },
        WRONG: {"verdict": "mismatch", "rule": "values", "reason": "dst differs at 3 of 1000 places"},
        BROKEN: {"verdict": "build_error", "reason": "line 5: expected an expression"},
    },
}

SILU = """#include <math.h>

__global__ void silu_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        v = v / (1.0 + exp(-v));
        out[i] = v;
    }
}

void silu(const float* x, float* out, int n, cudaStream_t stream) {
    silu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
}
"""
"""A kernel that the embedded model can rewrite."""

FILES = {
    "saxpy.cu": SAXPY,
    "emoji.cu": EMOJI_CRLF,
    "inline.py": IN_PYTHON,
    "typing.cu": TYPING,
    "silu.cu": SILU,
}
