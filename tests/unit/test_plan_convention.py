"""Kernels without a launch are run by convention only where their form leaves no doubt."""

from __future__ import annotations

import pytest
from dice_engine.source.plan_run import checking_sizes, measuring_sizes
from dice_engine.source.plans import kernel_plan

KERNEL = """__global__ void mix(const float* x, const double* w, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + (float)w[i];  // y[j]
}
"""


def test_a_thread_an_element_is_run_by_convention() -> None:
    plan = kernel_plan(KERNEL, "mix")
    assert plan.source == "convention" and plan.grid == ("(n+255)/256", "1", "1")
    assert [(b.name, b.role, b.extent) for b in plan.buffers] == [
        ("x", "in", "n"),
        ("w", "in", "n"),
        ("y", "inout", "n"),
    ]
    assert list(plan.scalars) == ["a"] and checking_sizes(plan) == ({"n": 1155}, {"n": 125}, {"n": 17933})
    assert measuring_sizes(plan) == {"n": 1 << 24}
    assert "convention" in plan.origin["grid"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[i]", "x[i + 1]"),
        ("x[i]", "x[0]"),
        ("x[i]", "*x"),
        ("i < n", "i < 100"),
        ("int n", "int n, int m"),
        ("const float* x", "float* x"),
        ("const double* w", "const int* w"),
        ("(float)w[i]", "gridDim.x * w[i]"),
        ("int i =", "__shared__ float s[3]; int i ="),
        ("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * 256 + threadIdx.x"),
        ("y[i] =", "atomicAdd(&y[i], 1.0f); y[i] ="),
    ],
)
def test_anything_else_is_not_guessed(old: str, new: str) -> None:
    assert old in KERNEL
    plan = kernel_plan(KERNEL.replace(old, new), "mix")
    if new == "float* x":
        assert plan.source == "convention", "another output"
    else:
        assert plan.source == "no_plan" and "no launch of mix" in (plan.reason or "")


def test_a_launch_in_the_file_is_better() -> None:
    text = KERNEL + "void run(const float* x, const double* w, float* y, float a, int n) {\n"
    text += "  mix<<<(n + 127) / 128, 128>>>(x, w, y, a, n);\n}\n"
    assert kernel_plan(text, "mix").source == "launch"
