"""Whatever the text, the host interpreter answers with a result, ``Unsupported`` or ``HostError``."""

from __future__ import annotations

import contextlib

import pytest
from dice_engine.source.host import HostError, HostProgram, Pointer, Unsupported
from dice_engine.source.plans import kernel_plan, stub
from host_recording import pointer, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SEED = r"""
#include <cuda_runtime.h>
#define DIV(a, b) (((a) + (b) - 1) / (b))
#define CHECK(x, ...) do { if (!(x)) throw std::runtime_error(#x); } while (0)
template <typename T, int N = 4>
__global__ void __launch_bounds__(256) k(const T* __restrict__ in, T* out, int n) { out[0] = in[0]; }
__global__ void j(float4* p, float s, unsigned n) {}
constexpr int kBlock = 128;
template <typename T> void go(const T* in, T* out, int n, cudaStream_t st) {
  auto entry = &k<T, 8>;
  dim3 grid(DIV(n, kBlock)), block{kBlock, 1};
  entry<<<grid, block, kBlock * sizeof(T), st>>>(in, out, n);
  for (int i = 0; i < 3; ++i) { if (i % 2 == 0) continue; CHECK(n > 0, "x"); n = n / 2 + i; }
  float s = 1.0f / (n ? n : 1);
  j<<<std::max(1, n), 32>>>(reinterpret_cast<float4*>(out), s, static_cast<unsigned>(n));
}
template void go<float>(const float*, float*, int, cudaStream_t);
extern "C" int run(const float* in, float* out, int n) { go(in, out, n, 0); return cudaGetLastError(); }
"""
SPACED = """
int n ( ) { } [ ] < > <<< >>> ; , * & = + - / 0 1 7.5f k go in out for while return template typename T auto dim3
switch case :: std -> . ? : struct __global__ void " ' /* */ // sizeof float* const break continue [&] x
torch::empty throw ! ~ %
"""
WORDS = [*SPACED.split(), "\n", "\n#define X ", "\n#if ", "\n#endif\n", "\\\n"]
RELAXED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def exercise(text: str) -> None:
    program = HostProgram(text)
    for name in list(program.functions):
        for function in program.overloads(name):
            args = [_argument(p.pointer, p.ctype) for p in function.params]
            bindings = {p.name: "float" if p.kind == "type" else "3" for p in function.template_params}
            with contextlib.suppress(Unsupported, HostError):
                run(text, name, *args, **bindings)
    for kernel in list(program.kernels):
        plan = kernel_plan(text, kernel)
        assert plan.runnable or plan.reason
        assert all(line.startswith("// @dice ") for line in stub(text, kernel).splitlines())


def _argument(is_pointer: bool, ctype: str):
    if is_pointer:
        return pointer("p", ctype)
    return None if "cuda" in ctype else 5


@RELAXED
@given(st.text(max_size=300))
def test_any_text(text):
    exercise(text)


@RELAXED
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_tokens_in_a_body(words):
    exercise(
        "template <typename T> __global__ void k(T* p, int n) {}\nvoid f(float* out, int n) { "
        + " ".join(words)
        + " }"
    )


@RELAXED
@given(st.data())
def test_damaged_source(data):
    text = SEED
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(st.sampled_from(["", *WORDS])) + text[at + length :]
    exercise(text)


def test_seed_itself_works():
    result, calls = run(SEED, "run", pointer("a"), pointer("b"), 1000)
    assert result == 0
    assert [c.kernel for c in calls] == ["k", "j"]
    assert calls[0].template_args == ("float", "8")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while (1) { n++; }", "too long"),
        ("f(p, n);", "nested"),
        ("static int calls = 0; calls++;", "static"),
        ("p[0] = 1.0f;", "line 3"),
        ("float first = p[0];", "device memory"),
        ("cublasHandle_t h; cublasCreate(&h);", "cublas"),
        ("std::thread t([] {});", "std::thread"),
        ("int x = 1 << 40;", "shift"),
        ("int = = 3;", "syntax"),
        ("int x = (((", "no complete function"),
        ("goto end; end: ;", "goto"),
        ("undeclared(n);", "undeclared"),
        ("k<<<1, 1>>>(p);", "takes 2 arguments"),
        ("missing<<<1, 1>>>(p);", "missing"),
        ("std::vector<int> v(1 << 28);", "elements"),
        ('asm volatile("");', "line 3"),
        ("try { k<<<1, 1>>>(p, n); } catch (...) {}", "try"),
    ],
)
def test_what_is_not_understood_is_named(body, reason):
    source = f"__global__ void k(float* p, int n) {{}}\nvoid f(float* p, int n) {{\n  {body}\n}}"
    with pytest.raises(Unsupported, match=reason):
        run(source, "f", pointer("p"), 4)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("int x = n / (n - 4);", "division by zero"),
        ('throw std::runtime_error("bad shape");', "bad shape"),
        ('TORCH_CHECK(n == 5, "n is ", n);', "n is 4"),
        ("TORCH_CHECK(n == 5);", "n == 5"),
        ("int a[2] = {1, 2}; n = a[n];", "outside"),
        ('AT_ERROR("never");', "never"),
        ("exit(1);", "exit"),
        ("k<<<0, 1>>>(p, n);", "dimension is zero"),
        ("assert(n < 0);", "n < 0"),
    ],
)
def test_refusals_of_the_host_code(body, reason):
    source = f"__global__ void k(float* p, int n) {{}}\nvoid f(float* p, int n) {{\n  {body}\n}}"
    with pytest.raises(HostError, match=reason):
        run(source, "f", pointer("p"), 4)


def test_an_error_in_the_runtime_is_not_ours():
    class Broken:
        def is_tensor(self, value):
            return False

        def launch(self, call):
            raise OSError("device is gone")

    source = "__global__ void k(float* p) {}\nvoid f(float* p) { k<<<1, 1>>>(p); }"
    with pytest.raises(OSError, match="device is gone"):
        HostProgram(source).call("f", [Pointer("p", 0, "float")], Broken())  # type: ignore[arg-type]


def test_broken_neighbours_lose_nobody():
    source = """
__global__ void first(float* p) {}
void broken(float* p { first<<<1, 1>>>(p);
__global__ void typed(float* p, int n) { if (n) { p[
template <typename T>
__global__ void last(T* p) {}
void run(float* p) { last<<<1, 1>>>(p); }
"""
    program = HostProgram(source)
    assert {"first", "last"} <= set(program.kernels) and "typed" not in program.kernels
    assert program.kernels["last"].template_params[0].name == "T"
    assert run(source, "run", pointer("p"))[1][0].template_args == ("float",)


def test_signatures():
    source = """
namespace a { namespace b {
template <class T, unsigned int N, bool kFlag = (3 > 2), typename... Rest>
static __global__ __launch_bounds__(128, 2) void k(
    const T* const __restrict__ x, T (&table)[4], const long unsigned int n, volatile int* flags,
    float v[], T t = T()) {}
} }
extern "C" __global__ void C10_LAUNCH_BOUNDS_1(1024) plain(unsigned char* p, const float *const *rows, void* any) {}
extern "C" {
__global__ void __cluster_dims__(2, 1, 1) clustered(int) {}
}
"""
    kernels = HostProgram(source).kernels
    assert set(kernels) == {"k", "plain", "clustered"}
    names = [(p.name, p.ctype, p.pointer, p.const) for p in kernels["k"].params]
    assert names[0] == ("x", "T", True, True)
    assert names[2] == ("n", "unsigned long", False, True)
    assert names[3] == ("flags", "int", True, False) and names[4] == ("v", "float", True, False)
    assert [(t.name, t.kind) for t in kernels["k"].template_params][:3] == [
        ("T", "type"),
        ("N", "value"),
        ("kFlag", "value"),
    ]
    assert [(p.ctype, p.pointer) for p in kernels["plain"].params] == [
        ("unsigned char", True),
        ("float*", True),
        ("void", True),
    ]
