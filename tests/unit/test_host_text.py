"""Host text for g++: stubs for kernels, calls for launches, lines where they were."""

from __future__ import annotations

import pytest
from dice_engine.verify.build.host import template_arguments
from dice_engine.verify.build.host_text import host_unit
from dice_engine.verify.build.interface import NeedsToolkit

KERNEL = (
    "template <typename T, int N = 4>\n__global__ void k(T* __restrict__ x, const int n) {\n  x[0] = N;\n}\n"
)


def test_a_kernel_becomes_a_stub_that_knows_its_parameters() -> None:
    unit = host_unit(KERNEL, cpu=False)
    assert unit.kernels == {"k": ("T", "N")}
    assert "::dice::arg(x), ::dice::arg(n)" in unit.text
    assert "x[0]" not in unit.text
    assert unit.text.count("\n") == KERNEL.count("\n")


@pytest.mark.parametrize(
    ("launch", "call"),
    [
        ("k<<<1, 2>>>(x, 3);", "(::dice::configure(1 , 2), k(x, 3));"),
        (
            "k<float, 8><<<g, b, 4 * n, st>>>(x, n);",
            "(::dice::configure(g , b , 4 * n , st), k<float, 8>(x, n));",
        ),
        ("ns::k<float><<<dim3(1, 2), 3>>>(x);", "(::dice::configure(dim3 ( 1 , 2 ) , 3), ns::k<float>(x));"),
        ("if (n) k<<<1, 2>>>(x);", "if (n) (::dice::configure(1 , 2), k(x));"),
        ("(*entry)<<<1, n >> 3>>>(x);", "(::dice::configure(1 , n > > 3), (*entry)(x));"),
    ],
)
def test_a_launch_becomes_a_call(launch: str, call: str) -> None:
    source = "void f(float* x, int n) { " + launch + " }\n"
    expected = call.replace("> >", ">>")
    assert (
        host_unit(source, cpu=False).text.replace("> >", ">>")
        == "void f(float* x, int n) { " + expected + " }\n"
    )


def test_lines_stay_where_they_are() -> None:
    source = KERNEL + "void f(float* x) {\n  k<float>\n    <<<1,\n       2>>>(x, 3);\n  nonsense;\n}\n"
    lines = host_unit(source, cpu=False).text.split("\n")
    assert lines.index("  nonsense;") == source.split("\n").index("  nonsense;")


def test_launches_in_macros_are_rewritten() -> None:
    source = "#define GO(T) \\\n  k<T><<<1, 2>>>(x, \\\n  n)\nvoid f();\n"
    text = host_unit(source, cpu=False).text
    assert "(::dice::configure(1 , 2), k<T>(x," in text and "<<<" not in text
    assert text.count("\n") == source.count("\n")


def test_device_code_goes_and_shared_code_stays() -> None:
    source = (
        "#include <torch/extension.h>\n#include <cub/cub.cuh>\n#include <vector>\n"
        "__device__ float f(float x) { return __ldg(&x); }\n"
        "__host__ __device__ int g(int x) { return x; }\n"
        "struct P { __device__ float h() const { return threadIdx.x; } int a; };\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("g", &g); }\n'
    )
    text = host_unit(source, cpu=False).text
    assert not any(word in text for word in ("torch/", "cub/", "__ldg", "threadIdx", "PYBIND11"))
    assert "<vector>" in text and "int g(int x) { return x; }" in text and "int a;" in text


def test_tensors_are_on_the_cpu_for_the_cpu_backend() -> None:
    source = "void f(torch::Tensor x) { TORCH_CHECK(x.is_cuda()); torch::zeros({1}, torch::device(torch::kCUDA)); }\n"
    assert "is_cpu()" in host_unit(source, cpu=True).text and "kCPU" in host_unit(source, cpu=True).text
    assert host_unit(source, cpu=False).text == source


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("void f() { cudaLaunchKernel((void*)k, 1, 1, a, 0, 0); }", "cudaLaunchKernel"),
        ("void f() { run([=] __device__ (int i) { return i; }); }", "lambda"),
        ('TORCH_LIBRARY(x, m) { m.def("f"); }', "operators"),
        ("__global__ void k(float*) { }", "without a name"),
        ("void f() { this->k<<<1, 2>>>(3); }", "cannot be read"),
    ],
)
def test_what_only_nvcc_understands_is_refused(source: str, words: str) -> None:
    with pytest.raises(NeedsToolkit, match=words):
        host_unit(source + "\n", cpu=False)


def test_template_arguments_from_the_compiler() -> None:
    signature = "void ns::k(const T*, T*) [with T = c10::Half; int N = 4; bool b = true; int64_t = long int]"
    assert template_arguments(signature, ["T", "N", "b"]) == ("c10::Half", "4", "true")
    assert template_arguments("void k(float*)", []) == ()
    with pytest.raises(NeedsToolkit, match="'Q'"):
        template_arguments(signature, ["Q"])
