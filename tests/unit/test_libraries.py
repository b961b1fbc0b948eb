"""Which of NVIDIA's libraries host code calls, and headers that nobody has."""

from __future__ import annotations

import pytest
from dice_engine.verify.build.libraries import called_libraries, missing_header


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("void f() { cublasSgemm(h, 1); cublasSgemm(h, 2); }", ["cublasSgemm"]),
        (
            "void f() { cublasHandle_t h; cublasCreate(&h); cublasSetStream(h, s); cublasGemmEx(h); }",
            ["cublasGemmEx"],
        ),
        (
            "void f() { cudnnCreateTensorDescriptor(&d); cudnnConvolutionForward(h); }",
            ["cudnnConvolutionForward"],
        ),
        ("void f() { at::cuda::blas::gemm<float>('n', 'n', 1); }", ["blas::gemm"]),
        ('// cublasSgemm(h)\nconst char* s = "cufftExecC2C(p)"; auto p = &cublasSgemm;', []),
        ("__global__ void k(float* x) { x[0] = curand_uniform(&state[0]); }", []),
    ],
)
def test_calls(source: str, calls: list[str]) -> None:
    assert called_libraries(source) == calls


def test_a_header_that_nobody_has_is_named() -> None:
    log = 'kernel.cu(3): catastrophic error: cannot open source file "{}"\n  #include <{}>'
    assert missing_header(log.format("no/such/header.h", "")) == "no/such/header.h"
    assert missing_header(log.format("torch/extension.h", "")) is None
    assert missing_header(log.format("math.h", "")) is None
    assert missing_header("kernel.cu(3): error: expected a ';'") is None
