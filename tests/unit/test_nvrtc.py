"""NVRTC to cubin, no GPU needed: what nvcc accepts is accepted, what it refuses is refused, on the user's lines."""

from __future__ import annotations

import pytest
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.interface import BuildError, InfraError, NeedsToolkit
from dice_engine.verify.build.nvrtc import Cubin, Instance, build_cubin, nvrtc

try:
    nvrtc()
except InfraError as missing:
    pytest.skip(f"needs NVRTC: {missing}", allow_module_level=True)

TEMPLATE = "template <typename T, int N>\n__global__ void k(T* x) { x[0] = N; }\n"


def build(source: str, *instances: Instance) -> Cubin:
    return build_cubin(split(source), "sm_90", instances)


def test_kernels_and_instances_have_mangled_names() -> None:
    source = TEMPLATE + "namespace a { __global__ void z(float* x) { x[0] = 1; } }\n"
    cubin = build(source, ("k", ("float", "4")))
    assert cubin.names == {("k", ("float", "4")): "_Z1kIfLi4EEvPT_", ("z", ()): "_ZN1a1zEPf"}
    assert cubin.data[:4] == b"\x7fELF"


def test_resources_are_reported_without_a_gpu() -> None:
    body = "__shared__ float s[100]; s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[3];"
    source = f"__global__ void k(float* x) {{ {body} }}\n"
    found = build(source).resources["k", ()]
    assert found.shared == 400 and found.registers > 0 and found.spill_stores == 0


def test_errors_are_on_the_users_lines() -> None:
    source = "#include <torch/extension.h>\n// two\n__global__ void k(float* x) {\n  x[0] = nope;\n}\n"
    with pytest.raises(BuildError, match=r'kernel\.cu\(4\): error: identifier "nope" is undefined') as caught:
        build(source)
    assert "/" not in caught.value.log.replace("//", "")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (
            "",
            'x[0] = INFINITY + M_PI + INT_MAX; int64_t i = 1; size_t n = i; assert(n); printf("%d", int(n));',
        ),
        ("#include <cstdint>\n#include <cfloat>\n", "uint32_t u = UINT32_MAX; x[0] = FLT_MAX * u;"),
        ("#include <torch/extension.h>\n", "uint32_t u = 1; x[0] = FLT_MAX * u;"),
        (
            "#include <algorithm>\n#include <cmath>\n",
            "x[0] = std::min(1, 2) + std::sqrt(x[1]) + std::pow(x[0], 2);",
        ),
        ("#include <limits>\n", "x[0] = std::numeric_limits<float>::infinity();"),
        (
            "#include <cuda_runtime.h>\n#include <stdio.h>\n#include <math.h>\n",
            "x[0] = fmaxf(x[1], expf(x[2]));",
        ),
        ("struct P { P(int a) : a(a) {} int a; };\n", "P p(3); x[0] = p.a;"),
    ],
)
def test_what_nvcc_accepts(headers: str, body: str) -> None:
    build(f"{headers}__global__ void k(float* x) {{ {body} }}\n")


@pytest.mark.parametrize("body", ["x[0] = FLT_MAX;", "uint32_t u = 1;", "x[0] = CUDART_INF_F;"])
def test_forgotten_headers_are_errors_as_with_nvcc(body: str) -> None:
    with pytest.raises(BuildError, match="undefined"):
        build(f"__global__ void k(float* x) {{ {body} }}\n")


def test_kernels_of_dead_branches_are_left_out() -> None:
    source = "#ifdef __HIPCC__\n__global__ void q() {}\n#endif\n__global__ void k(float* x) { x[0] = 1; }\n"
    assert ("k", ()) in build(source).names


def test_unknown_instances_are_build_errors() -> None:
    with pytest.raises(BuildError, match="Foo"):
        build(TEMPLATE, ("k", ("Foo", "1")))


@pytest.mark.parametrize("source", ["#include <nosuch.h>\n", "__device__ c10::Half h(int x);\n"])
def test_what_nvcc_may_know_needs_the_toolkit(source: str) -> None:
    with pytest.raises(NeedsToolkit):
        build(source + "__global__ void k(float* x) { x[0] = 1; }\n")
