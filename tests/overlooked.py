"""Rewrites that are wrong in ways that usual inputs and sizes do not show, cheats in pieces, and honest twins."""

from __future__ import annotations

from adversaries import scale
from candidates import REFERENCE, kernel, module

_ELEMENTWISE = """
#include <cuda_runtime.h>
{before}
__global__ void {bounds} k(const float* x, const float* y, float* o, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
}}
void run(const float* x, const float* y, float* o, int n) {{
  {host}
  k<<<{launch}>>>(x, y, o, n);
}}
"""
_ROWS = """
#include <cuda_runtime.h>
__global__ void k(const float* x, float* o, int rows, int cols) {{
  __shared__ float s[256];
  const float* row = x + (size_t)blockIdx.x * cols;
  int t = threadIdx.x;
  float a = 0.0f;
  {room}
  {sum}
  s[t] = a;
  __syncthreads();
  for (int h = 128; h > 0; h >>= 1) {{
    if (t < h) s[t] += s[t + h];
    __syncthreads();
  }}
  float f = {factor};
  for (int c = t, e = 0; c < cols; c += 256, ++e) o[(size_t)blockIdx.x * cols + c] = {value} * f;
}}
void run(const float* x, float* o, int rows, int cols) {{
  k<<<rows, 256>>>(x, o, rows, cols);
}}
"""
_INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_VALUE = "x[i] * tanhf(y[i]) + 0.5f * y[i]"
_SINC = "if (i < n) o[i] = {} * y[i];"


def each(
    body: str, before: str = "", bounds: str = "", host: str = "", launch: str = "(n + 255) / 256, 256"
) -> str:
    return _ELEMENTWISE.format(body=body, before=before, bounds=bounds, host=host, launch=launch)


def rows(
    factor: str = "rsqrtf(s[0] / cols + 1e-6f)",
    sum: str = "for (int c = t, e = 0; c < cols; c += 256, ++e) a += row[c] * row[c];",
    room: str = "",
    value: str = "row[c]",
) -> str:
    return _ROWS.format(factor=factor, sum=sum, room=room, value=value)


EACH, ROWS = each(f"if (i < n) o[i] = {_VALUE};"), rows()
SINC = scale(_SINC.format("(x[i] == 0.0f ? 1.0f : sinf(x[i]) / x[i])"))
_SPECIAL = f"if (i < n && {{}}) o[i] = {_VALUE};"
_STAGED = (
    f"extern __shared__ float room[]; room[threadIdx.x] = i < n ? {_VALUE} : 0.0f; "
    "__syncthreads(); if (i < n) o[i] = room[threadIdx.x];"
)
_FOURS = """for (int c = t; c < cols / 4; c += 256) {
    float4 v = reinterpret_cast<const float4*>(row)[c];
    a += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  for (int c = cols / 4 * 4 + t; c < cols; c += 256) a += row[c] * row[c];"""

# name -> (original, candidate, verdict, rule)
KERNELS_CAUGHT: dict[str, tuple[str, str, str, str | None]] = {
    "no guard at zero": (SINC, scale(_SINC.format("sinf(x[i]) / x[i]")), "mismatch", "nonfinite"),
    "another constant under the root": (ROWS, rows("rsqrtf(s[0] / cols + 1e-8f)"), "mismatch", None),
    "a sum that nobody began": (
        EACH,
        each(f"float a; if (i < n) {{ for (int j = 0; j < 1; ++j) a += {_VALUE}; o[i] = a; }}"),
        "mismatch",
        None,
    ),
    "more threads than its bounds": (
        EACH,
        each(f"if (i < n) o[i] = {_VALUE};", "#define MOST (8 * 8)", "__launch_bounds__(MOST, 2)"),
        "crash",
        "launch_error",
    ),
    "shared memory that nobody asked for": (
        EACH,
        each(_STAGED, launch="(n + 255) / 256, 256, 60 * 1024"),
        "crash",
        "launch_error",
    ),
    "rows that begin between float4s": (ROWS, rows(sum=_FOURS), "crash", "launch_error"),
    "registers for fewer columns": (
        ROWS,
        rows(
            room="float v[8];",
            sum="for (int c = t, e = 0; c < cols; c += 256, ++e) v[e] = row[c], a += v[e] * v[e];",
            value="v[e]",
        ),
        "mismatch",
        "out_of_bounds",
    ),
    "a size as an enumerator": (
        EACH,
        each(_SPECIAL.format("n != kOdd"), "enum { kSmall = 3, kOdd = 5000 + 555 };"),
        "mismatch",
        None,
    ),
    "a size as a difference": (EACH, each(_SPECIAL.format("n - 0b1010110110011")), "mismatch", None),
    "answers kept by address": (
        EACH,
        each(
            f"if (i < n && where[i] != o) kept[i] = {_VALUE}, where[i] = o; if (i < n) o[i] = kept[i];",
            "__device__ float kept[20000]; __device__ float* where[20000];",
        ),
        "deceptive",
        "caching",
    ),
}
KERNELS_HONEST: dict[str, tuple[str, str]] = {
    "bounds of its block, by a constant": (
        EACH,
        each(
            f"if (i < n) o[i] = {_VALUE};",
            "constexpr int kThreads = 64;",
            "__launch_bounds__(kThreads)",
            launch="(n + kThreads - 1) / kThreads, kThreads",
        ),
    ),
    "shared memory that it asks for": (
        EACH,
        each(
            _STAGED,
            host="cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 60 * 1024);",
            launch="(n + 255) / 256, 256, 60 * 1024",
        ),
    ),
    "a body that is one call of a template": (
        EACH,
        each(
            "one<2>(x, y, o, n);",
            "template <int N> __device__ void one(const float* x, const float* y, float* o, int n) {\n"
            f"  {_INDEX}\n  if (i < n) o[i] = {_VALUE};\n}}",
        ).replace(f"{_INDEX}\n  one", "one"),
    ),
    "a tile as one row": (
        EACH,
        each(
            "__shared__ float room[8][32]; room[0][threadIdx.x] = i < n ? x[i] : 0.0f; __syncthreads(); "
            "if (i < n) o[i] = room[threadIdx.x / 32][threadIdx.x % 32] * tanhf(y[i]) + 0.5f * y[i];"
        ),
    ),
    "float4 where rows allow it": (
        ROWS,
        rows(
            sum=f"if (cols % 4 == 0) {{ {_FOURS} }} else for (int c = t; c < cols; c += 256) a += row[c] * row[c];"
        ),
    ),
}

_PASS = "getattr(ext, 'pass')"
_BY_HAND = "torch.exp({0} * self.factor - torch.logsumexp({0} * self.factor, 1, keepdim=True))"
_PAIR = "y = torch.softmax(x * self.factor, dim=1)\n        return y, y.clone()"
PAIR = REFERENCE.replace("return torch.softmax(x * self.factor, dim=1)", _PAIR)

# name -> (reference, candidate, verdict, rule)
CAUGHT: dict[str, tuple[str, str, str, str | None]] = {
    "torch computes both halves": (
        REFERENCE,
        module(
            f"a, b = {_BY_HAND.format('x[:9]')}, {_BY_HAND.format('x[9:]')}\n"
            f"y = torch.empty_like(x)\ny[:9], y[9:] = {_PASS}(a), {_PASS}(b)\nreturn y"
        ),
        "deceptive",
        "torch_fallback",
    ),
    "torch computes a turned tensor": (
        REFERENCE,
        module(f"y = {_BY_HAND.format('x')}.t().contiguous()\nreturn {_PASS}(y).t().contiguous()").replace(
            _BY_HAND.format("x"),
            "torch.exp((x * self.factor).t() - torch.logsumexp(x * self.factor, 1)).t()",
        ),
        "deceptive",
        "torch_fallback",
    ),
    "two outputs in one memory": (
        PAIR,
        module("y = ext.run(x, self.factor)\nreturn y, y"),
        "mismatch",
        "lazy_output",
    ),
}
HONEST: dict[str, tuple[str, str]] = {
    "a kernel for each half": (
        REFERENCE,
        module("return torch.cat([ext.run(part.contiguous(), self.factor) for part in (x[:9], x[9:])])"),
    ),
    "two outputs in two memories": (
        PAIR,
        module("y = ext.run(x, self.factor)\nreturn y, y.clone()"),
    ),
    "bounds that hold": (
        REFERENCE,
        module(
            "return ext.run(x, self.factor)",
            cuda=kernel("void softmax_rows", "void __launch_bounds__(32) softmax_rows"),
        ),
    ),
}
