"""Plans of kernels: what is found in a file, what is declined and why, and how a plan is carried out."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from dice_engine.source import plan_wrapper, plans
from dice_engine.source.host import HostProgram, LaunchCall, Pointer, Unsupported
from dice_engine.source.plan import Fill, Plan
from dice_engine.source.plans import (
    buffer_ctype,
    checking_sizes,
    extent,
    host_program,
    instantiations,
    kernel_plan,
    measuring_sizes,
    rehearse,
    run_plan,
    scalar_values,
    stub,
)
from host_recording import RecordingRuntime

AXPY = """
__global__ void axpy(float a, const float* x, float* y, int count) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) y[k] += a * x[k];
}
void run_axpy(float a, const float* x, float* y, int count, cudaStream_t st) {
  const int threads = 256;
  const int blocks = (count + threads - 1) / threads;
  axpy<<<blocks, threads, 0, st>>>(a, x, y, count);
}
"""


def plan_of(text: str, kernel: str) -> Plan:
    plan = kernel_plan(text, kernel)
    assert plan.runnable, plan.reason
    return plan


def reason_of(text: str, kernel: str) -> str:
    plan = kernel_plan(text, kernel)
    assert not plan.runnable
    return plan.reason or ""


def test_raw_wrapper():
    plan = plan_of(AXPY, "axpy")
    assert (plan.source, plan.wrapper, plan.kernel) == ("launch", "run_axpy", "axpy")
    assert [(b.name, b.role, b.extent) for b in plan.buffers] == [
        ("x", "in", "count"),
        ("y", "inout", "count"),
    ]
    assert plan.scalars == {"a": Fill("uniform", "0.25", "0.95")}
    assert "run_axpy, line 9" in plan.origin["grid"]
    counts = [s["count"] for s in checking_sizes(plan)]
    assert any(c > 256 and c % 256 for c in counts) and any(c < 256 for c in counts)
    assert max(counts) <= 1 << 20
    assert measuring_sizes(plan) == plan.sizes[-1] == {"count": 1 << 24}


def test_rehearsal_is_what_run_plan_launches():
    plan, program = plan_of(AXPY, "axpy"), host_program(AXPY)
    sizes = {"count": 1000}
    runtime = RecordingRuntime()
    pointers = {name: Pointer(name, 0, "float") for name in ("x", "y")}
    run_plan(program, plan, sizes, {}, pointers, {"a": 0.5}, runtime)
    expected = LaunchCall("axpy", (), (4, 1, 1), (256, 1, 1), 0, (0.5, pointers["x"], pointers["y"], 1000))
    assert runtime.calls == [expected]
    assert [c.grid for c in rehearse(program, plan, sizes, {})] == [(4, 1, 1)]


def test_fixed_grid_gets_sizes_beyond_it():
    text = """
__global__ void fold(float* mean, const float* d, int n) {}
void run_fold(float* mean, const float* d, int n) { fold<<<64, 256>>>(mean, d, n); }
"""
    assert any(s["n"] > 64 * 256 for s in checking_sizes(plan_of(text, "fold")))


def test_two_sizes_are_independent():
    text = """
__global__ void rowsum(const float* t, float* s, int rows, int cols) {}
void run(const float* t, float* s, int rows, int cols) { rowsum<<<rows, 128>>>(t, s, cols, rows); }
"""
    plan = plan_of(text, "rowsum")
    assert {b.extent for b in plan.buffers} == {"rows*cols"}
    assert "upper bound" in plan.origin["extents"]
    assert all(math.prod(s.values()) <= 1 << 20 for s in checking_sizes(plan))
    assert any(s["rows"] < s["cols"] for s in plan.sizes) and any(s["rows"] > s["cols"] for s in plan.sizes)
    assert any(s["cols"] < 128 for s in plan.sizes) and any(
        s["cols"] > 128 and s["cols"] % 128 for s in plan.sizes
    )


@pytest.mark.parametrize(
    ("launch", "power"),
    [
        ("mm<<<dim3((n + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(a, c, n);", 2),
        ("mm<<<(n * n + 255) / 256, 256>>>(a, c, n);", 2),
        ("mm<<<(n + 255) / 256, 256>>>(a, c, n);", 1),
        ("dim3 b(8, 8, 4); mm<<<dim3((n + 7) / 8, (n + 7) / 8, (n + 3) / 4), b>>>(a, c, n);", 3),
    ],
)
def test_square_matrices_from_the_growth_of_the_grid(launch, power):
    signature = "(const float* a, float* c, int n)"
    text = f"__global__ void mm{signature} {{}}\nvoid f{signature} {{ {launch} }}"
    plan = plan_of(text, "mm")
    assert plan.buffers[0].extent == "*".join("n" * power)
    assert all(extent(plan.buffers[0], s) <= 1 << 20 for s in checking_sizes(plan))
    assert extent(plan.buffers[0], measuring_sizes(plan)) <= 1 << 24


def test_alias_and_explicit_instantiations():
    text = """
template <typename Elem, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 2) peak(const Elem* __restrict__ t, Elem* __restrict__ p, int cols) {}
template <typename Elem>
void launch_peak(const Elem* t, Elem* p, int rows, int cols, cudaStream_t st) {
  constexpr int kWarps = 4;
  auto entry = &peak<Elem, kWarps>;
  const size_t bytes = kWarps * 32 * sizeof(Elem);
  cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  entry<<<dim3(rows), dim3(kWarps * 32), bytes, st>>>(t, p, cols);
}
template void launch_peak<float>(const float*, float*, int, int, cudaStream_t);
template void launch_peak(const double*, double*, int, int, cudaStream_t);
"""
    plan = plan_of(text, "peak")
    assert plan.templates == ({"Elem": "float"}, {"Elem": "double"})
    assert [buffer_ctype(plan, plan.buffers[0], t) for t in plan.templates] == ["float", "double"]
    assert instantiations(host_program(text), plan) == (("peak", ("float", "4")), ("peak", ("double", "4")))
    call = rehearse(host_program(text), plan, {"rows": 3, "cols": 7}, plan.templates[1])[0]
    assert (call.grid, call.shared, call.args[2]) == ((3, 1, 1), 1024, 7)


def test_wrapper_that_demands_multiples():
    text = """
__global__ void v4(const float4* x, float4* y, int n4) {}
void run(const float* x, float* y, int n) {
  if (n % 1024 != 0) throw std::invalid_argument("n must be a multiple of 1024");
  v4<<<n / 1024, 256>>>((const float4*)x, (float4*)y, n / 4);
}
"""
    plan = plan_of(text, "v4")
    assert all(s["n"] % 1024 == 0 for s in plan.sizes) and len(checking_sizes(plan)) >= 1


def test_pipeline_plans_both_kernels_through_one_wrapper():
    text = """
__global__ void a(const float* x, float* t, int n) {}
__global__ void b(const float* t, float* y, int n) {}
void run(const float* x, float* y, int n) {
  float* t; cudaMalloc(&t, n * sizeof(float));
  a<<<(n + 31) / 32, 32>>>(x, t, n);
  b<<<(n + 31) / 32, 32>>>(t, y, n);
  cudaFree(t);
}
"""
    assert plan_of(text, "a").wrapper == plan_of(text, "b").wrapper == "run"
    assert dict(instantiations(host_program(text), plan_of(text, "a"))) == {"a": (), "b": ()}


def test_scalars_flags_and_seeds():
    text = """
__global__ void k(float* p, long n, double eps, bool on, unsigned seed) {}
void f(float* p, long n, double eps, bool on, unsigned seed) { k<<<(n + 63) / 64, 64>>>(p, n, eps, on, seed); }
"""
    plan = plan_of(text, "k")
    first, second = (scalar_values(plan, plan.sizes[0], seed) for seed in (0, 1))
    assert set(first) == {"eps", "on", "seed"} and {first["on"], second["on"]} == {0, 1}
    assert 0.25 <= first["eps"] < 0.95 and first == scalar_values(plan, plan.sizes[0], 0) != second


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("", "no launch of k in this file; add a // @dice line"),
        ("struct S { void f(float* p, int n) { k<<<1, 1>>>(0, p, n); } };", "no launch .*members of classes"),
        ("void f(float* p, int n) { cudaMemcpyToSymbol(w, p, 36); k<<<1, 1>>>(0, p, n); }", "constant memory, 'w'"),
        ("int main() { k<<<1, 1>>>(0, 0, 0); }", "only from main"),
        ("void f(std::vector<torch::Tensor> x) { k<<<1, 1>>>(0, 0, 0); }", "takes lists of torch tensors"),
        ("void f(float* p, float s) { k<<<1, 1>>>(0, p, 1); }", "no integer parameter of f tells"),
        ("void f(const int* idx, float* p, int n) { k<<<1, 1>>>(idx, p, n); }", "pointer 'idx' needs a fill rule"),
        ("void f(Foo* q, float* p, int n) { k<<<1, 1>>>(0, p, n); }", "pointer 'q' of f has element type Foo"),
        ("void f(float** q, float* p, int n) { k<<<1, 1>>>(0, p, n); }", "element type float"),
        ("void f(Foo q, float* p, int n) { k<<<1, 1>>>(0, p, n); }", "parameter 'q' of f has type Foo"),
        ("template <typename T> void f(T* p, int n) { k<<<1, 1>>>(0, p, n); }", r"add // @dice tmpl\(T=float\)"),
        ("void f(float* p, int n) { cublasHandle_t h; k<<<1, 1>>>(0, p, n); }", "line 2 cannot be .*cublasHandle_t"),
        ("void f(float* p, int n) { if (n < 0) k<<<1, 1>>>(0, p, n); }", "k is not launched at the sizes tried"),
        ("void f(float* p, int n) { assert(n == 7); k<<<1, 1>>>(0, p, n); }", "refuses the sizes tried: .*n == 7"),
    ],
)  # fmt: skip
def test_declined_with_a_reason(host, reason):
    text = f"__global__ void k(const int* idx, float* p, int n) {{}}\n{host}\n"
    assert re.search(reason, reason_of(text, "k"))


def test_unknown_kernel():
    assert "no kernel 'nope'" in reason_of(AXPY, "nope")


def test_integer_data_that_is_written_gets_small_ints():
    text = """
__global__ void hist(const unsigned char* px, int* bins, int n) {}
void run(const unsigned char* px, int* bins, int n) { hist<<<8, 64>>>(px, bins, n); }
"""
    plan = plan_of(text, "hist")
    assert [b.fill for b in plan.buffers] == [Fill("int", "0", "256"), Fill("int", "0", "100")]


ANNOTATED = """
// A stencil.
// @dice grid=(h+7)/8,(w+31)/32 block=32,8
// @dice in(image[h*stride]) out(across[h*w])
// @dice sizes(w=1920, h=1080, stride=2048; w=33, h=7, stride=64)
__global__ void gradients(float* image, float* across, int w, int h, int stride, float scale) {}
"""


def test_annotation_stands_alone():
    plan = plan_of(ANNOTATED, "gradients")
    assert plan.source == "annotation" and set(plan.scalars) == {"scale"}
    assert checking_sizes(plan) == plan.sizes and measuring_sizes(plan)["w"] == 1920
    (call,) = rehearse(host_program(ANNOTATED), plan, {"w": 33, "h": 7, "stride": 64}, {})
    assert (call.grid, call.block) == ((1, 2, 1), (32, 8, 1))
    assert [extent(b, plan.sizes[1]) for b in plan.buffers] == [448, 231]


def test_annotation_refines_the_wrapper():
    text = """
// @dice fill(idx=int[0,n)) sizes(n=500; n=77)
__global__ void gather(const float* x, const int* idx, float* y, int n) {}
void run(const float* x, const int* idx, float* y, int n) { gather<<<(n + 63) / 64, 64>>>(x, idx, y, n); }
"""
    plan = plan_of(text, "gather")
    assert plan.wrapper == "run" and plan.sizes == ({"n": 500}, {"n": 77})
    assert {b.name: b.fill for b in plan.buffers}["idx"] == Fill("int", "0", "n")
    assert measuring_sizes(plan) == {"n": 500} and len(checking_sizes(plan)) == 2


def test_annotation_of_a_template_kernel():
    text = """
// @dice grid=(n+N*32-1)/(N*32) block=32 smem=N*8
// @dice inout(x[n]) sizes(n=1000; n=5) tmpl(T=float|double, N=4)
template <typename T, int N> __global__ void k(T* x, long n) {}
"""
    plan, program = plan_of(text, "k"), host_program(text)
    assert instantiations(program, plan) == (("k", ("float", "4")), ("k", ("double", "4")))
    (call,) = rehearse(program, plan, {"n": 1000}, plan.templates[0])
    assert (call.grid, call.shared) == ((8, 1, 1), 32)


def test_annotation_fault_is_the_reason():
    text = ANNOTATED.replace("out(across[h*w])", "out(gz[h*w])")
    assert "says what `across` is" in reason_of(text, "gradients")
    assert "sizse" in reason_of(ANNOTATED.replace("sizes(", "sizse("), "gradients")


def test_crlf_file_and_block_comments():
    text = AXPY.replace("__global__", "/* 🚀 */ __global__").replace("\n", "\r\n")
    assert plan_of(text, "axpy").wrapper == "run_axpy"
    text = "/* @dice grid=1 block=n\n * @dice inout(p[n]) sizes(n=4; n=9) */\n__global__ void k(float* p, int n) {}\n"
    assert rehearse(host_program(text), plan_of(text, "k"), {"n": 9}, {})[0].block == (9, 1, 1)


def test_stub_makes_a_plan():
    text = """
__global__ void flip(float* src, float* dst, int w, int h, int stride) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) dst[y * w + x] = src[(h - 1 - y) * stride + x];
}
"""
    lines = stub(text, "flip")
    assert lines.splitlines()[0] == "// @dice grid=(w+31)/32,(h+7)/8 block=32,8"
    plan = plan_of(text.replace("__global__", lines + "\n__global__"), "flip")
    assert plan.source == "annotation" and len(plan.sizes) == 2


def test_stub_of_a_template_with_indices():
    text = "template <typename T, int N> __global__ void k(const T* x, const int* idx, T* y, int n, float s) {}\n"
    lines = stub(text, "k")
    assert "fill(idx=int[0,n))" in lines and "tmpl(T=float, N=4)" in lines
    plan = plan_of(lines + "\n" + text, "k")
    assert set(plan.scalars) == {"s"} and plan.templates == ({"T": "float", "N": "4"},)


def test_value_missing_from_a_plan_is_named():
    plan = plan_of(AXPY, "axpy")
    with pytest.raises(Unsupported, match="'a'"):
        run_plan(HostProgram(AXPY), plan, {"count": 3}, {}, {}, {}, RecordingRuntime())


CASES = Path(__file__).parents[1] / "cases"


@pytest.mark.parametrize(
    ("file", "kernel", "wrapper", "buffers"),
    [
        ("scaled_sum.cu", "scaled_sum", "call_scaled_sum", {"left": "in", "right": "in", "dst": "inout"}),
        ("running_mean.cu", "running_mean", "update_mean", {"mean": "inout", "sample": "in"}),
        ("row_maximum.cu", "row_maximum", "find_row_maxima", {"matrix": "in", "maxima": "inout"}),
        ("made_by_macros.cu", "move_up", "call_move_up", {"in": "in", "out": "inout"}),
        ("wide_characters.cu", "mixture", "call_mixture", {"first": "in", "second": "in", "mixed": "inout"}),
        ("two_openings.cu", "no_negatives", "call_no_negatives", {"v": "inout"}),
        ("half_typed.cu", "below", "call_below", {"q": "inout"}),
        ("gradients.cu", "gradients", None, {"image": "in", "across": "out", "down": "out"}),
    ],
)
def test_cases_have_plans(file, kernel, wrapper, buffers):
    text = (CASES / file).read_bytes().decode()
    plan = plan_of(text, kernel)
    assert plan.wrapper == wrapper and {b.name: b.role for b in plan.buffers} == buffers
    for template in plan.templates:
        for sizes in plan.sizes:
            assert kernel in {c.kernel for c in rehearse(host_program(text), plan, sizes, template)}


@pytest.mark.parametrize(
    ("file", "kernel"),
    [("gradients.cu", "upside_down"), ("two_openings.cu", "amplify"), ("half_typed.cu", "above")],
)
def test_cases_without_plan_have_a_stub(file, kernel):
    text = (CASES / file).read_bytes().decode()
    assert reason_of(text, kernel) == f"no launch of {kernel} in this file; add a // @dice line"
    assert stub(text, kernel).startswith("// @dice grid=")


STEPS = """constexpr int kThreads = 128;
#define TWICE(x) (2 * (x))
#define SAME(x) (x)

int threads_for(int n) { return TWICE(kThreads); }

__global__ void step(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

void run_step(const float* x, float* y, int n, cudaStream_t s) {
  const int threads = SAME(threads_for(n));
  step<<<(n + threads - 1) / threads, threads, 0, s>>>(x, y, n);
}
"""


@pytest.mark.parametrize(
    ("old", "new", "threads"),
    [
        ("", "", 256),
        ("y[i] = x[i]", "y[i] = x[i] + 1.0f", 256),
        ("kThreads = 128", "kThreads = 64", 128),
        ("(2 * (x))", "(4 * (x))", 512),
        ("return TWICE(kThreads)", "return kThreads", 128),
        ("= SAME(threads_for(n))", "= 32", 32),
        ("  int i = blockIdx", "#undef SAME\n#define SAME(x) 64\n  int i = blockIdx", 64),
        ("__global__", "#undef SAME\n#define SAME(x) 64\n__global__", 64),
    ],
)
def test_what_is_kept_of_an_earlier_text_is_never_stale(old: str, new: str, threads: int) -> None:
    kernel_plan(STEPS, "step")
    changed = STEPS.replace(old, new, 1)
    assert f"the block of {threads} threads" in kernel_plan(changed, "step").origin["sizes"]
    assert f"the block of {threads} threads" in kernel_plan(f"\n{changed}", "step").origin["sizes"]


def test_an_edit_inside_one_body_costs_no_new_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [kernel_plan(STEPS, "step")]
    monkeypatch.setattr(plans, "HostProgram", None)
    monkeypatch.setattr(plan_wrapper, "choose", None)
    assert [kernel_plan(STEPS.replace("x[i];", "x[i] * 3.0f;"), "step")] == before


def test_lines_are_those_of_the_text_as_it_is() -> None:
    first = kernel_plan(STEPS, "step").origin["grid"]
    later = kernel_plan(STEPS.replace("if (i < n)", "if (i < n)\n\n"), "step").origin["grid"]
    assert (first, later) == ("launch in run_step, line 14", "launch in run_step, line 16")


ALIASED = """
using real = float;
typedef unsigned int count_t;
namespace detail { typedef real scalar; }
using detail::scalar;
__global__ void k(const scalar* x, scalar* y, real s, count_t n) { if (threadIdx.x < n) y[threadIdx.x] = s * x[0]; }
template <typename T> __global__ void g(const T* x, T* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[0]; }
void run(const scalar* x, scalar* y, real s, count_t n) { k<<<(n + 255) / 256, 256>>>(x, y, s, n); }
template <typename real> void run_g(const real* x, real* y, int n) { g<real><<<(n + 255) / 256, 256>>>(x, y, n); }
template void run_g<detail::scalar>(const float*, float*, int);
template void run_g<double>(const double*, double*, int);
"""


def test_the_names_that_a_file_gives_to_types_are_followed() -> None:
    plan = plan_of(ALIASED, "k")
    assert [(b.name, buffer_ctype(plan, b, {})) for b in plan.buffers] == [("x", "float"), ("y", "float")]
    assert list(plan.sizes[0]) == ["n"] and list(plan.scalars) == ["s"]
    plan = plan_of(ALIASED.replace("detail::scalar>", "scalar>"), "g")
    assert [t["real"] for t in plan.templates] == ["float", "double"], (
        "a template's own name hides the file's"
    )


def test_a_name_with_two_meanings_is_not_followed() -> None:
    text = ALIASED.replace("using real = float;", "using real = float;\nusing real = double;")
    assert "'s' of run has type real" in reason_of(text, "k")
