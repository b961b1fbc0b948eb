"""The splitter: what is device code, what goes, and that lines stay where they were."""

from __future__ import annotations

import pytest
from dice_engine.source.host_parse import KernelDecl
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.interface import LaunchError
from dice_engine.verify.build.launch_args import bindings, pack
from dice_engine.verify.build.lexer import live_tokens, tokenize
from hypothesis import given
from hypothesis import strategies as st

EXTENSION = r"""#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime.h>
#include <vector>
#include <cmath>
using namespace at;
using torch::Tensor;
#define THREADS 256
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
inline void gpuAssert(cudaError_t code, const char* file, int line) {
  if (code != cudaSuccess) fprintf(stderr, "GPUassert: %s\n", cudaGetErrorString(code));
}
#define DEVICE_INLINE __device__ __forceinline__
static const int kBlock = 128;
constexpr float kEps = 1e-6f;
enum class Mode : int { Sum, Mean };
typedef float real;
using Vec = float4;
static std::vector<int> cache;
static cudaStream_t side_stream = nullptr;
struct HostOnly { torch::Tensor t; std::string name; };
struct Params { int n; float scale; };
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
DEVICE_INLINE real sq(real x) { return x * x; }
__device__ bool operator==(const Params& a, const Params& b) { return a.n == b.n; }
template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid(scalar_t z) { return 1.0 / (1.0 + exp(-z)); }
template <typename scalar_t, Mode M = Mode::Sum>
__global__ void __launch_bounds__(THREADS)
lltm_kernel(const scalar_t* __restrict__ gates, scalar_t* out, const size_t n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = sigmoid(gates[i]) * kBlock + ceil_div(n, 2) + sq(kEps);
}
template __global__ void lltm_kernel<float, Mode::Sum>(const float*, float*, size_t);
extern "C" {
__global__ void in_c(float* x, Params p) { x[threadIdx.x] = p.scale; }
void host_in_c(float* x) { in_c<<<1, 32>>>(x, Params{}); }
}
namespace {
__device__ int counter = 0;
int helper(int x) { return x + 1; }
}
namespace a { namespace b {
__global__ void nested(Vec* x) { x[0].x += 1; }
torch::Tensor run(torch::Tensor x) { nested<<<1, 1>>>((Vec*)x.data_ptr()); return x; }
}}
Tensor forward(Tensor gates) {
  CHECK_CUDA(gates);
#ifdef NOISY
  printf("forward\n");
#endif
  auto out = torch::empty_like(gates);
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "lltm", ([&] {
    lltm_kernel<scalar_t><<<2, THREADS>>>(gates.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), gates.numel());
  }));
  return out;
}
class Runner : public HostOnly { public: Tensor go(Tensor x) { return forward(x); } };
auto host_lambda = [](torch::Tensor x) { return x + 1; };
int call_counter = 0;
TORCH_LIBRARY(my_ops, m) { m.def("forward", &forward); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "LLTM forward (CUDA)");
}
"""


def test_an_extension_keeps_its_device_side_on_its_lines() -> None:
    source = split(EXTENSION)
    before, after = EXTENSION.split("\n"), source.text.split("\n")
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert new == old or not new.strip() or new.strip() in old
    for gone in (
        "torch",
        "Tensor",
        "PYBIND11_MODULE",
        "TORCH_LIBRARY",
        "gpuAssert(cudaError_t",
        "helper",
        "<<<",
        "std::",
    ):
        assert gone not in source.text.replace("TORCH_CHECK", ""), gone
    assert (
        "cache" not in source.text and "call_counter" not in source.text and "side_stream" not in source.text
    )
    kept = (
        "kBlock = 128",
        "kEps",
        "enum class Mode",
        "typedef float real",
        "using Vec",
        "struct Params",
        "ceil_div(int a",
    )
    for text in (
        *kept,
        "sq(real x)",
        "operator==",
        "sigmoid(",
        "int counter = 0",
        "#include <cmath>",
        "template __global__",
    ):
        assert text in source.text, text
    assert source.text.count("#ifdef") == source.text.count("#endif") == 1
    assert list(source.kernels) == ["lltm_kernel", "in_c", "nested"]
    assert source.kernels["lltm_kernel"].instantiations == (("float", "Mode::Sum"),)
    assert source.qualified("nested") == "a::b::nested" and source.qualified("in_c") == "in_c"
    assert (
        source.aliases["real"] == "float"
        and source.aliases["Vec"] == "float4"
        and source.aliases["Mode"] == "int"
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "#define K(n) __global__ void n(float* x) { x[0] = 1; }\nK(one)\nK(two)\nvoid host() {}\n",
            "K(two)",
        ),
        (
            "#define BOUNDS(n) __launch_bounds__(n)\n__global__ BOUNDS(64) void k(float* x) {}\nvoid host() {}\n",
            "void k(",
        ),
        ("#define KERNEL __global__ void\nKERNEL k(float* x) { x[0] = 1; }\nvoid host() {}\n", "KERNEL k("),
        ("auto f = [] __device__ (float x) { return x; };\nvoid host() {}\n", "(float x) { return x; }"),
        (
            "struct Add { __device__ float operator()(float a) const { return a; } };\nvoid host() {}\n",
            "struct Add",
        ),
        ("__device__ float4 operator+(float4 a, float4 b) { return a; }\nvoid host() {}\n", "operator+"),
        ("__host__ __device__ inline int f(int a) { return a; }\nvoid host() {}\n", "int f(int a)"),
        ("extern __shared__ float s[];\nvoid host() {}\n", "extern __shared__ float s[];"),
        ("__constant__ float w[3] = {1, 2, 3};\nvoid host() {}\n", "w[3] = {1, 2, 3};"),
        (
            "template <class T, class = std::enable_if_t<(sizeof(T) > 2)>>\n__device__ T f(T x);\nvoid host() {}\n",
            "T f(T x);",
        ),
        (
            "template <> __device__ float f<float>(float x) { return x; }\nvoid host() {}\n",
            "f<float>(float x)",
        ),
        ("__attribute__((noinline)) __device__ void f() {}\nvoid host() {}\n", "void f()"),
        (
            "namespace cg = cooperative_groups;\nnamespace F = torch::nn::functional;\nvoid host() {}\n",
            "namespace cg",
        ),
        ('static_assert(sizeof(int) == 4, "{");\nvoid host() {}\n', "static_assert"),
        ("__device__ auto f(float x) -> decltype(x) { return x; }\nvoid host() {}\n", "-> decltype(x)"),
    ],
)
def test_device_forms_stay_and_the_host_function_after_them_goes(text: str, kept: str) -> None:
    result = split(text).text
    assert kept in result
    assert "host()" not in result and "torch" not in result


def test_text_being_typed_costs_no_other_kernel() -> None:
    text = "__global__ void a(float* q) { q[0] = 1; }\n__global__ void b(float* q) {\n  if (q) {\n    float v = q[\n\n"
    text += (
        "template <int N>\n__global__ void c(float* q) { q[0] = N; }\nvoid host() { c<2><<<1, 1>>>(0); }\n"
    )
    source = split(text)
    assert {"a", "c"} <= set(source.kernels)
    assert "host()" not in source.text


def test_a_signature_in_two_branches_is_read_in_the_live_one() -> None:
    text = "#ifdef WITH_BIAS\n__global__ void r(float* v, const float* b) {\n  float c = b[0];\n#else\n"
    text += "__global__ void r(float* v) {\n  float c = 0;\n#endif\n  v[0] = c;\n}\nvoid host() {}\n"
    source = split(text)
    assert [p.name for p in source.kernels["r"].params] == ["v"]
    assert "host()" not in source.text and source.text.count("__global__") == 2


def test_carriage_returns_and_wide_characters() -> None:
    source = split(
        "// 温度 🚀\r\n#define F(x) \\\r\n  (x)\r\n__global__ void k(float* x) { x[0] = F(1); } // λ\r\nvoid h() {}\r\n"
    )
    assert source.text.split("\n")[3].startswith("__global__ void k")
    assert "\r" not in source.text and "void h" not in source.text


@given(
    st.text(alphabet="{}()[]<>;\"'#/*\\\n =,:_", max_size=60), st.text(alphabet="{}()<>;\"'\n", max_size=20)
)
def test_no_text_breaks_the_splitter(noise: str, more: str) -> None:
    text = (
        f"{noise}\n__global__ void k(float* x) {{ x[0] = 1; }}\n{more}template <class T> void h(T t) {{ }}\n"
    )
    assert split(text).text.count("\n") == text.count("\n")


def test_dead_branches_and_unknown_conditions() -> None:
    text = "#endif\n#if 0\ndead {\n#elif __CUDA_ARCH__ >= 800\nfirst;\n#else\nsecond;\n#endif\n"
    text += "#ifdef MINE\nno;\n#endif\n"
    words = [t.text for t in live_tokens(tokenize(text)) if t.kind == "id"]
    assert words == ["first", "second"]


def decl(signature: str) -> KernelDecl:
    return next(iter(split(f"{signature} {{}}\n").kernels.values()))


def test_what_only_files_and_nvcc_know_is_blank() -> None:
    text = "\ufeff#define A 1\n__global__ void k(float* x) {\n"
    text += "  x[A] = [=] __host__ __device__ (int i) { return i; }(2);\n}\n"
    made = split(text).text
    assert made.startswith("   #define A 1\n"), "as many bytes as the mark"
    assert "  x[A] = [=]                     (int i) { return i; }(2);" in made
    assert [len(line.encode()) for line in made.split("\n")] == [
        len(line.encode()) for line in text.split("\n")
    ]


def test_headers_of_the_samples_that_only_host_code_needs_go() -> None:
    made = split(
        '#include <helper_cuda.h>\n#include "helper_math.h"\n__global__ void k(float4* x) { x[0] += x[1]; }\n'
    )
    assert made.dropped == ("helper_cuda.h",)
    assert "helper_cuda" not in made.text and '#include "helper_math.h"' in made.text


def test_arguments_are_packed_by_declared_types() -> None:
    kernel = decl(
        "template <typename T, typename I = int, int N = 4>\n"
        "__global__ void k(const T* x, T s, I n, bool on, unsigned char c,"
        " real r, __half h, __nv_bfloat16 b, unsigned u, long long w)"
    )
    assert bindings(kernel, ("double",)) == {"T": "double", "I": "int", "N": "4"}
    values = pack(kernel, ("double",), [2**47, 1, 7.0, 1, 255, 2.5, 1.5, -2.0, -1, -5], {"real": "float"})
    names = [type(v).__name__ for v in values]
    assert names == [
        "c_ulong",
        "c_double",
        "c_int",
        "c_bool",
        "c_ubyte",
        "c_float",
        "c_ushort",
        "c_ushort",
        "c_uint",
        "c_long",
    ]
    assert [v.value for v in values] == [2**47, 1.0, 7, True, 255, 2.5, 0x3E00, 0xC000, 2**32 - 1, -5]


def test_arguments_that_cannot_be_packed_say_which() -> None:
    kernel = decl("__global__ void k(Params p, float* x)")
    with pytest.raises(LaunchError, match="cannot pass p of type Params by value"):
        pack(kernel, (), [1, 2])
    with pytest.raises(LaunchError, match="2 parameters, got 1"):
        pack(kernel, (), [1])
