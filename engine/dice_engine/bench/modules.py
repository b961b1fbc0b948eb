"""Forty PyTorch modules with a CUDA rewrite of each, as people and models write them: what the bench judges."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModulePair:
    """``reference`` defines ``Model``, ``get_inputs`` and ``get_init_inputs``; ``candidate`` defines ``ModelNew``."""

    name: str
    reference: str
    candidate: str


_ELEMENTWISE = {
    "relu": ("torch.relu(x)", "fmaxf(v, 0.0f)"),
    "silu": ("F.silu(x)", "v / (1.0f + expf(-v))"),
    "gelu": ("F.gelu(x)", "0.5f * v * (1.0f + erff(v * 0.70710678f))"),
    "tanh": ("torch.tanh(x)", "tanhf(v)"),
    "sigmoid": ("torch.sigmoid(x)", "1.0f / (1.0f + expf(-v))"),
    "softplus": ("F.softplus(x)", "v > 20.0f ? v : log1pf(expf(v))"),
    "elu": ("F.elu(x)", "v > 0.0f ? v : expm1f(v)"),
    "hardswish": ("F.hardswish(x)", "v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) / 6.0f"),
    "mish": ("F.mish(x)", "v * tanhf(v > 20.0f ? v : log1pf(expf(v)))"),
    "leaky_relu": ("F.leaky_relu(x, 0.1)", "v > 0.0f ? v : 0.1f * v"),
}
_GATED = {
    "swiglu": ("F.silu(x) * y", "v / (1.0f + expf(-v)) * w"),
    "gated_sigmoid": ("x * torch.sigmoid(y)", "v / (1.0f + expf(-w))"),
    "add_relu": ("torch.relu(x + y)", "fmaxf(v + w, 0.0f)"),
    "squared_difference": ("(x - y) ** 2", "(v - w) * (v - w)"),
    "maximum": ("torch.maximum(x, y)", "fmaxf(v, w)"),
    "lerp": ("torch.lerp(x, y, 0.3)", "v + 0.3f * (w - v)"),
}
_ROW_SUMS = {
    "row_sum": ("x.sum(1)", "0.0f", "a + b", "v", "total"),
    "row_mean": ("x.mean(1)", "0.0f", "a + b", "v", "total / cols"),
    "row_max": ("x.amax(1)", "-INFINITY", "fmaxf(a, b)", "v", "total"),
    "row_norm": ("x.norm(dim=1)", "0.0f", "a + b", "v * v", "sqrtf(total)"),
    "row_mean_square": ("x.pow(2).mean(1)", "0.0f", "a + b", "v * v", "total / cols"),
    "row_sum_of_sizes": ("x.abs().sum(1)", "0.0f", "a + b", "fabsf(v)", "total"),
}
_ROW_MAPS = {
    "softmax": ("torch.softmax(x, 1)", "-INFINITY", "fmaxf", "v", "expf(v - first)", "expf(v - first) / second"),
    "log_softmax": ("F.log_softmax(x, 1)", "-INFINITY", "fmaxf", "v", "expf(v - first)", "v - first - logf(second)"),
    "layer_norm": (
        "F.layer_norm(x, x.shape[1:])",
        "0.0f",
        "add",
        "v / cols",
        "(v - first) * (v - first) / cols",
        "(v - first) * rsqrtf(second + 1e-5f)",
    ),
    "rms_norm": ("x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)", "0.0f", "add", "v * v / cols", "0.0f",
                 "v * rsqrtf(first + 1e-6f)"),
    "normalize": ("F.normalize(x, dim=1)", "0.0f", "add", "v * v", "0.0f", "v / fmaxf(sqrtf(first), 1e-12f)"),
    "centre": ("x - x.mean(1, keepdim=True)", "0.0f", "add", "v / cols", "0.0f", "v - first"),
}  # fmt: skip
_COLUMNS = {
    "bias_relu": ("torch.relu(x + self.weight)", "fmaxf(v + w, 0.0f)"),
    "scale": ("x * self.weight", "v * w"),
    "prelu": ("torch.where(x > 0, x, self.weight * x)", "v > 0.0f ? v : w * v"),
    "bias_gelu": ("F.gelu(x + self.weight)", "0.5f * (v + w) * (1.0f + erff((v + w) * 0.70710678f))"),
}
_PRODUCTS = {
    "linear": ("x @ self.weight", "sum"),
    "linear_relu": ("torch.relu(x @ self.weight)", "fmaxf(sum, 0.0f)"),
    "linear_sigmoid": ("torch.sigmoid(x @ self.weight)", "1.0f / (1.0f + expf(-sum))"),
    "linear_square": ("(x @ self.weight) ** 2", "sum * sum"),
}
_MOVES = {
    "transpose": ("x.t().contiguous()", "y[c * rows + r] = x[i];"),
    "flip": ("x.flip(1)", "y[r * cols + cols - 1 - c] = x[i];"),
    "roll": ("torch.roll(x, 1, 1)", "y[r * cols + (c + 1) % cols] = x[i];"),
    "upper": ("torch.triu(x)", "y[i] = c >= r ? x[i] : 0.0f;"),
}

_POINTWISE = """
__global__ void NAME_kernel(ARGUMENTS, float* __restrict__ y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    LOADS
    y[i] = FORMULA;
  }
}
"""
_REDUCE = """
__global__ void NAME_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  __shared__ float part[256];
  float a = NEUTRAL;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float v = x[blockIdx.x * cols + c], b = TERM;
    a = JOIN;
  }
  part[threadIdx.x] = a;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) {
      float b = part[threadIdx.x + half];
      a = part[threadIdx.x];
      part[threadIdx.x] = JOIN;
    }
    __syncthreads();
  }
  float total = part[0];
  if (threadIdx.x == 0) y[blockIdx.x] = RESULT;
}
"""
_ROWS = """
__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ float across(float v, bool largest, float* part) {
  for (int o = 16; o > 0; o >>= 1) {
    float other = __shfl_xor_sync(0xffffffffu, v, o);
    v = largest ? fmaxf(v, other) : v + other;
  }
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (int w = 1; w < blockDim.x / 32; ++w) v = largest ? fmaxf(v, part[w]) : v + part[w];
  __syncthreads();
  return v;
}
__global__ void NAME_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  __shared__ float part[32];
  const float* row = x + (size_t)blockIdx.x * cols;
  float first = NEUTRAL, second = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float v = row[c];
    first = JOIN(first, TERM);
  }
  first = across(first, LARGEST, part);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float v = row[c];
    second += AGAIN;
  }
  second = across(second, false, part);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float v = row[c];
    y[(size_t)blockIdx.x * cols + c] = RESULT;
  }
}
"""
_MATMUL = """
constexpr int TILE = 16;
__global__ void NAME_kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int rows,
                            int inner, int cols) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  int r = blockIdx.y * TILE + threadIdx.y, c = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < inner; k += TILE) {
    left[threadIdx.y][threadIdx.x] = r < rows && k + threadIdx.x < inner ? x[r * inner + k + threadIdx.x] : 0.0f;
    right[threadIdx.y][threadIdx.x] = c < cols && k + threadIdx.y < inner ? w[(k + threadIdx.y) * cols + c] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (r < rows && c < cols) y[r * cols + c] = RESULT;
}
"""
_MOVE = """
__global__ void NAME_kernel(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  int r = i / cols, c = i % cols;
  MOVE
}
"""
_CHECKS = '  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor");\n'
_FLAT = """torch::Tensor NAME(PARAMETERS) {
CHECKS  auto y = torch::empty_like(x);
  int n = x.numel();
  NAME_kernel<<<(n + 255) / 256, 256>>>(POINTERS, y.data_ptr<float>(), n);
  return y;
}
"""
_BY_ROW = """torch::Tensor NAME(torch::Tensor x) {
CHECKS  const int rows = x.size(0), cols = x.size(1);
  auto y = SHAPE;
  NAME_kernel<<<LAUNCH>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
  return y;
}
"""
_BY_TILE = """torch::Tensor NAME(torch::Tensor x, torch::Tensor w) {
CHECKS  const int rows = x.size(0), inner = x.size(1), cols = w.size(1);
  auto y = torch::empty({rows, cols}, x.options());
  dim3 block(16, 16), grid((cols + 15) / 16, (rows + 15) / 16);
  NAME_kernel<<<grid, block>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), rows, inner, cols);
  return y;
}
"""
_REFERENCE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
_CANDIDATE = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
{cuda}"""

ext = load_inline(
    name="{name}_extension",
    cpp_sources="torch::Tensor {name}({parameters});",
    cuda_sources=source,
    functions=["{name}"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, {arguments}):
        return ext.{name}({passed})
'''


def module_pairs() -> list[ModulePair]:
    """Forty pairs, all different, in a fixed order."""
    return [
        *(_pointwise(name, forward, formula, "x") for name, (forward, formula) in _ELEMENTWISE.items()),
        *(_pointwise(name, forward, formula, "x, y") for name, (forward, formula) in _GATED.items()),
        *(_reduction(name, *parts) for name, parts in _ROW_SUMS.items()),
        *(_row_map(name, *parts) for name, parts in _ROW_MAPS.items()),
        *(_columns(name, forward, formula) for name, (forward, formula) in _COLUMNS.items()),
        *(_product(name, forward, result) for name, (forward, result) in _PRODUCTS.items()),
        *(_move(name, forward, move) for name, (forward, move) in _MOVES.items()),
    ]


def _pointwise(name: str, forward: str, formula: str, arguments: str) -> ModulePair:
    two = arguments != "x"
    kernel = _filled(
        _POINTWISE,
        NAME=name,
        ARGUMENTS="const float* __restrict__ a" + (", const float* __restrict__ b" if two else ""),
        LOADS="float v = a[i];" + (" float w = b[i];" if two else ""),
        FORMULA=formula,
    )
    parameters = "torch::Tensor x" + (", torch::Tensor z" if two else "")
    pointers = "x.data_ptr<float>()" + (", z.data_ptr<float>()" if two else "")
    host = _filled(_FLAT, NAME=name, PARAMETERS=parameters, POINTERS=pointers)
    inputs = ", ".join(["torch.randn(512, 1024)"] * (2 if two else 1))
    return _pair(name, forward, kernel + host, parameters, arguments, arguments, inputs)


def _reduction(name: str, forward: str, neutral: str, join: str, term: str, result: str) -> ModulePair:
    kernel = _filled(_REDUCE, NAME=name, NEUTRAL=neutral, JOIN=join, TERM=term, RESULT=result)
    host = _filled(_BY_ROW, NAME=name, SHAPE="torch::empty({rows}, x.options())", LAUNCH="rows, 256")
    return _pair(name, forward, kernel + host, "torch::Tensor x", "x", "x", "torch.randn(512, 1000)")


def _row_map(
    name: str, forward: str, neutral: str, join: str, term: str, again: str, result: str
) -> ModulePair:
    largest = "true" if join == "fmaxf" else "false"
    parts = {
        "NEUTRAL": neutral,
        "JOIN": join,
        "TERM": term,
        "AGAIN": again,
        "LARGEST": largest,
        "RESULT": result,
    }
    kernel = _filled(_ROWS, NAME=name, **parts)
    host = _filled(_BY_ROW, NAME=name, SHAPE="torch::empty_like(x)", LAUNCH="rows, 256")
    return _pair(name, forward, kernel + host, "torch::Tensor x", "x", "x", "torch.randn(512, 1000)")


def _columns(name: str, forward: str, formula: str) -> ModulePair:
    kernel = _filled(
        _POINTWISE.replace("int n)", "int cols, int n)"),
        NAME=name,
        ARGUMENTS="const float* __restrict__ a, const float* __restrict__ b",
        LOADS="float v = a[i], w = b[i % cols];",
        FORMULA=formula,
    )
    host = _filled(
        _FLAT.replace(", n);", ", x.size(1), n);"),
        NAME=name,
        PARAMETERS="torch::Tensor x, torch::Tensor w",
        POINTERS="x.data_ptr<float>(), w.data_ptr<float>()",
    )
    init = "        self.weight = nn.Parameter(torch.randn(768))\n"
    return _pair(
        name,
        forward,
        kernel + host,
        "torch::Tensor x, torch::Tensor w",
        "x",
        "x, self.weight",
        "torch.randn(512, 768)",
        init,
    )


def _product(name: str, forward: str, result: str) -> ModulePair:
    kernel, host = _filled(_MATMUL, NAME=name, RESULT=result), _filled(_BY_TILE, NAME=name)
    init = "        self.weight = nn.Parameter(torch.randn(120, 136))\n"
    parameters = "torch::Tensor x, torch::Tensor w"
    return _pair(
        name, forward, kernel + host, parameters, "x", "x, self.weight", "torch.randn(200, 120)", init
    )


def _move(name: str, forward: str, move: str) -> ModulePair:
    kernel = _filled(_MOVE, NAME=name, MOVE=move)
    shape = "torch::empty({cols, rows}, x.options())" if name == "transpose" else "torch::empty_like(x)"
    host = _filled(_BY_ROW, NAME=name, SHAPE=shape, LAUNCH="(rows * cols + 255) / 256, 256")
    return _pair(name, forward, kernel + host, "torch::Tensor x", "x", "x", "torch.randn(500, 700)")


def _pair(
    name: str,
    forward: str,
    cuda: str,
    parameters: str,
    arguments: str,
    passed: str,
    inputs: str,
    init: str = "",
) -> ModulePair:
    return ModulePair(
        name,
        _REFERENCE.format(forward=forward, arguments=arguments, inputs=inputs, init=init),
        _CANDIDATE.format(
            name=name, cuda=cuda, parameters=parameters, arguments=arguments, passed=passed, init=init
        ),
    )


def _filled(template: str, **words: str) -> str:
    """The template with each word put for its name; longest names first, so that none is part of another."""
    for key, value in sorted({"CHECKS": _CHECKS, **words}.items(), key=lambda entry: -len(entry[0])):
        template = template.replace(key, value)
    return template
