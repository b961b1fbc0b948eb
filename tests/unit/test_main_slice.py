"""Kernels that only main() launches: the part that leads to the launch, and what is declined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dice_engine.source.host import HostProgram
from dice_engine.source.plan import Plan
from dice_engine.source.plan_run import extent, rehearse
from dice_engine.source.plan_view import explain
from dice_engine.source.plans import kernel_plan

WILD = Path(__file__).parents[1] / "wild"
MAIN = """#include <cuda_runtime.h>
#include <cstdio>
#define CHECK(call) do { if ((call) != cudaSuccess) exit(1); } while (0)
__global__ void add(const float* a, const float* b, float* c, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + s * b[i];
}
static int blocks_for(int n, int threads) { return (n + threads - 1) / threads; }
int main(int argc, char** argv) {
  int n = 1 << 20;
  if (argc > 1) n = atoi(argv[1]);
  const float s = 1.0f;
  float *a, *b, *c;
  const size_t bytes = n * sizeof(float);
  CHECK(cudaMalloc(&a, bytes));
  CHECK(cudaMalloc((void**)&b, bytes));
  CHECK(cudaMallocManaged(&c, bytes));
  float* h = new float[n];
  for (int i = 0; i < n; ++i) h[i] = i;
  CHECK(cudaMemcpy(a, h, bytes, cudaMemcpyHostToDevice));
  int threads = 192;
  dim3 grid;
  grid.x = blocks_for(n, threads);
  for (int round = 0; round < 10; ++round) {
    add<<<grid, threads>>>(a, b, c, s, n);
  }
  printf("%f\\n", h[0]);
  return 0;
}
"""


def reason(text: str) -> str:
    plan = kernel_plan(text, "add")
    assert not plan.runnable, plan.origin
    return plan.reason or ""


def launches(plan: Plan, text: str, sizes: dict[str, int]) -> list[tuple[object, ...]]:
    calls = rehearse(HostProgram(text + (plan.host_source or "")), plan, sizes, {})
    return [(call.kernel, call.grid, call.block, call.args[-1]) for call in calls]


def test_what_leads_to_the_launch_is_a_function() -> None:
    plan = kernel_plan(MAIN, "add")
    assert plan.source == "launch", plan.reason
    assert [(p.name, p.ctype, p.const) for p in plan.params] == [
        ("a", "float", True),
        ("b", "float", True),
        ("c", "float", False),
        ("n", "int", False),
        ("s", "float", False),
    ]
    assert [(b.name, b.role, b.extent) for b in plan.buffers] == [
        ("a", "in", "((n * 4))/4"),
        ("b", "in", "((n * 4))/4"),
        ("c", "inout", "((n * 4))/4"),
    ]
    assert "s" in plan.scalars, "1 would hide whether it is used"
    assert any(sizes["n"] % 192 for sizes in plan.sizes) and any(sizes["n"] < 192 for sizes in plan.sizes)
    assert launches(plan, MAIN, {"n": 1000}) == [("add", (6, 1, 1), (192, 1, 1), 1000)]


def test_it_is_said_in_words() -> None:
    parts = {part.what: part for part in explain(kernel_plan(MAIN, "add"))}
    assert parts["called through"].value == "main()"
    assert parts["called through"].origin == "what leads to the launch on line 25 of main()"
    assert not any("dice_main" in f"{part.value} {part.origin}" for part in parts.values())


def test_several_kernels_and_sizes() -> None:
    text = (WILD / "main_only.cu").read_text()
    plan = kernel_plan(text, "matmul")
    assert launches(plan, text, {"M": 33, "N": 45, "K": 67}) == [("matmul", (3, 3, 1), (16, 16, 1), 67)]
    sizes = {"M": 33, "N": 45, "K": 67}
    assert [extent(buffer, sizes) for buffer in plan.buffers] == [33 * 67, 67 * 45, 33 * 45], (
        "as main allocates"
    )
    assert "main() itself has M=128, N=256, K=64" in plan.origin["sizes"]
    other = kernel_plan(text, "vec_add")
    assert "matmul" not in (other.host_source or ""), "a plan depends on its own kernel alone"


def test_a_number_from_the_arguments_is_a_size() -> None:
    text = MAIN.replace(
        "int n = 1 << 20;\n  if (argc > 1) n = atoi(argv[1]);",
        "int n = argc > 1 ? std::atoi(argv[1]) : 1 << 20;",
    )
    assert text != MAIN
    plan = kernel_plan(text, "add")
    assert plan.runnable and set(plan.sizes[0]) == {"n"}, plan.reason


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("CHECK(cudaMalloc(&a, bytes));", "a = pool(bytes);", "where main() has a from is not known"),
        ("add<<<grid, threads>>>(a,", "add<<<grid, threads>>>(a + 1,", "where main() has a + 1 from"),
        (
            "int n = 1 << 20;\n  if (argc > 1) n = atoi(argv[1]);",
            "int n = compute();",
            "no number of main() tells how long its buffers are",
        ),
        ("round < 10; ++round) {", "round < 10; ++round) {\n    if (round) threads = 64;", "threads on line"),
        ("s, n);\n  }", "s, round);\n  }", "the loop on line 24 decides"),
        ("CHECK(cudaMemcpy(a", "cudaMemcpyToSymbol(w, h, bytes); CHECK(cudaMemcpy(a", "constant memory"),
        ("int threads = 192;", "int threads = argc > 2 ? 64 : 192;", "the program's arguments decide"),
        ("const float* b", "const int* b", "does not fit"),
    ],
)
def test_what_is_in_doubt_is_declined(old: str, new: str, said: str) -> None:
    assert MAIN.count(old) == 1
    text = MAIN.replace(old, new)
    if said == "does not fit":
        text = text.replace("float *a, *b, *c;", "float *a, *c; int* b;")
        said = "index-like pointer 'b' needs a fill rule"
    assert said in reason(text)
    assert "@dice" in reason(text)


def test_a_function_of_pointers_goes_before_main() -> None:
    text = MAIN + "void go(float* a, float* b, float* c, int n) { add<<<n / 32, 32>>>(a, b, c, 2.0f, n); }\n"
    plan = kernel_plan(text, "add")
    assert (plan.wrapper, plan.host_source) == ("go", None)


def test_an_annotation_says_what_main_leaves_open() -> None:
    text = MAIN.replace("const float* b", "const int* b").replace(
        "float *a, *b, *c;", "float *a, *c; int* b;"
    )
    text = text.replace("__global__ void add", "// @dice fill(b=int[0,n)) tol(rel=1e-3)\n__global__ void add")
    plan = kernel_plan(text, "add")
    assert plan.runnable, plan.reason
    assert plan.tolerance is not None and plan.host_source is not None
    assert replace(plan, host_source=None) != plan
