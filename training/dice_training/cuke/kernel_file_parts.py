"""What stands around a kernel in people's files: includes, macros, constants, other functions and kernels."""

from __future__ import annotations

import random
from dataclasses import dataclass

from dice_training.cuke.words import fresh_name

BLOCK_NAMES = (
    "BLOCK_SIZE",
    "THREADS",
    "BLOCK",
    "kThreads",
    "kBlock",
    "NT",
    "TPB",
    "kBlockSize",
    "NUM_THREADS",
)
_CONSTANTS = (
    "#define {n} {v}",
    "#define {n} {v}",
    "constexpr int {n} = {v};",
    "static const int {n} = {v};",
    "static constexpr int {n} = {v};",
    "const int {n} = {v};",
)
_DIVISIONS = (
    ("CEIL_DIV", "#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))"),
    ("DIV_UP", "#define DIV_UP(x, y) ((x + y - 1) / y)"),
    ("div_up", "static inline int div_up(int a, int b) {\n    return (a + b - 1) / b;\n}"),
    ("ceil_div", "inline int ceil_div(int a, int b) { return (a + b - 1) / b; }"),
)
_SPARE_KERNELS = (
    "__global__ void {k}(float* {p}, float value, int {n}) {{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < {n}) {p}[i] = value;\n}}",
    "__global__ void {k}(const float* {p}, float* {q}, int {n}) {{\n"
    "    int idx = threadIdx.x + blockIdx.x * blockDim.x;\n    if (idx >= {n}) return;\n    {q}[idx] = {p}[idx];\n}}",
    "// y += alpha * x\n__global__ void {k}(float alpha, const float* {p}, float* {q}, int {n}) {{\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < {n}; i += blockDim.x * gridDim.x)\n"
    "        {q}[i] += alpha * {p}[i];\n}}",
)
_SPARE_FUNCTIONS = (
    "static inline int {k}(int a, int b) {{ return a < b ? a : b; }}",
    "__device__ __forceinline__ float {k}(float a) {{\n    return a * a;\n}}",
    "__host__ __device__ inline int {k}(int a, int b) {{ return (a / b) * b; }}",
    "struct {k} {{\n    int rows;\n    int cols;\n}};",
)


@dataclass(frozen=True)
class Surroundings:
    block_name: str
    """Name of the block size, empty for a literal."""
    block_line: str
    division: str
    """Name of a function that divides and rounds up, empty for none."""
    division_line: str
    spare: str
    """Another kernel or function of the file, which the launch does not use."""
    spare_first: bool
    launch_bounds: bool


def draw_surroundings(rng: random.Random, threads: str, taken: set[str], torch_host: bool) -> Surroundings:
    name = line = ""
    if rng.random() < 0.5:
        name = rng.choice(BLOCK_NAMES) if rng.random() < 0.7 else fresh_name(rng, taken)
        if rng.random() < 0.3:
            name = name.upper()
        line = rng.choice(_CONSTANTS).format(n=name, v=threads)
        taken.add(name)
    division, division_line = rng.choice(_DIVISIONS) if rng.random() < 0.2 else ("", "")
    spare = ""
    if rng.random() < (0.08 if torch_host else 0.18):
        k, p, q, n = (fresh_name(rng, taken | {str(i)}) for i in range(4))
        if len({k, p, q, n}) == 4:
            spare = rng.choice((*_SPARE_KERNELS, *_SPARE_FUNCTIONS)).format(k=k, p=p, q=q, n=n)
            taken.update((k, p, q, n))
    return Surroundings(name, line, division, division_line, spare, rng.random() < 0.6, rng.random() < 0.06)


def open_below(lines: list[str]) -> list[str]:
    """Every brace that ends a line on a line of its own."""
    result = []
    for line in lines:
        if line.endswith(" {"):
            result += [line[:-2], line[: len(line) - len(line.lstrip())] + "{"]
        else:
            result.append(line)
    return result
