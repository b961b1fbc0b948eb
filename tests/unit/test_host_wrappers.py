"""Host functions as people write them around their kernels, interpreted: launches, shapes, arguments."""

from __future__ import annotations

import pytest
import torch
from dice_engine.source.host import HostError, HostProgram, Pointer, Unsupported
from host_recording import RecordingRuntime, pointer, run, tensor

INCLUDES = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
"""
UNARY = "__global__ void act(const float* x, float* y, int n) { y[0] = x[0]; }\n"


def test_load_inline_activation():
    source = (
        INCLUDES
        + UNARY
        + """
torch::Tensor relu_cuda(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int size = x.numel();
    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;
    act<<<num_blocks, block_size>>>(x.data_ptr<float>(), out.data_ptr<float>(), size);
    return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu_cuda", &relu_cuda); }
"""
    )
    x = tensor(1000, 3)
    out, (call,) = run(source, "relu_cuda", x)
    assert out.shape == x.shape and out is not x
    assert (call.grid, call.block, call.shared) == ((12, 1, 1), (256, 1, 1), 0)
    assert call.args == (Pointer(x, 0, "float"), Pointer(out, 0, "float"), 3000)


def test_check_macros_pass_and_fail():
    source = (
        INCLUDES
        + UNARY
        + r"""
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) \
    CHECK_CUDA(x);     \
    CHECK_CONTIGUOUS(x)
at::Tensor forward(const at::Tensor& input) {
    CHECK_INPUT(input);
    TORCH_CHECK(input.dim() == 2, "expected 2 dimensions, got ", input.dim());
    TORCH_CHECK_EQ(input.size(1), 8);
    auto y = at::zeros_like(input);
    act<<<at::ceil_div(input.numel(), (int64_t)128), 128>>>(
        input.data_ptr<float>(), y.data_ptr<float>(), input.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
    )
    _, (call,) = run(source, "forward", tensor(5, 8))
    assert call.grid == (1, 1, 1)
    with pytest.raises(HostError, match="expected 2 dimensions, got 3"):
        run(source, "forward", tensor(5, 8, 2))
    with pytest.raises(HostError, match="TORCH_CHECK_EQ"):
        run(source, "forward", tensor(5, 9))


def test_softmax_rows_with_shared_memory_and_stream():
    source = (
        INCLUDES
        + """
__global__ void softmax_kernel(const float* in, float* out, int rows, int cols) {}
torch::Tensor softmax(torch::Tensor input) {
    const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
    auto sizes = input.sizes();
    int cols = sizes.back();
    int rows = input.numel() / cols;
    auto output = torch::empty(sizes, input.options());
    int threads = 1;
    while (threads < cols && threads < 1024) threads <<= 1;
    size_t shmem = (threads / 32 + 1) * sizeof(float);
    auto stream = at::cuda::getCurrentCUDAStream();
    softmax_kernel<<<rows, threads, shmem, stream.stream()>>>(
        input.data_ptr<float>(), output.data_ptr<float>(), rows, cols);
    return output;
}
"""
    )
    out, (call,) = run(source, "softmax", tensor(2, 7, 100))
    assert out.shape == (2, 7, 100)
    assert (call.grid, call.block, call.shared) == ((14, 1, 1), (128, 1, 1), 20)
    assert call.args[2:] == (14, 100)


def test_layernorm_with_dispatch_and_tuple():
    source = (
        INCLUDES
        + """
template <typename scalar_t, int BLOCK>
__global__ void ln(const scalar_t* x, const scalar_t* g, scalar_t* y, scalar_t* mean, int n, float eps) {}
std::vector<torch::Tensor> layer_norm(torch::Tensor x, torch::Tensor gamma, double eps = 1e-5) {
    const auto n = x.size(-1);
    const int64_t m = x.numel() / n;
    auto y = torch::empty_like(x);
    auto mean = torch::empty({m}, x.options().dtype(torch::kFloat32));
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "layer_norm", ([&] {
        constexpr int kBlock = 512;
        ln<scalar_t, kBlock><<<m, kBlock>>>(
            x.data_ptr<scalar_t>(), gamma.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(),
            reinterpret_cast<scalar_t*>(mean.data_ptr()), n, eps);
    }));
    return {y, mean};
}
"""
    )
    (_y, mean), (call,) = run(
        source, "layer_norm", tensor(4, 6, dtype=torch.float64), tensor(6, dtype=torch.float64)
    )
    assert mean.shape == (4,) and mean.dtype == torch.float32
    assert call.template_args == ("double", "512")
    assert call.args[5] == pytest.approx(1e-5)
    _, (half,) = run(source, "layer_norm", tensor(4, 6, dtype=torch.float16), tensor(6, dtype=torch.float16))
    assert half.template_args[0] == "c10::Half"
    with pytest.raises(HostError, match="\"layer_norm\" not implemented for 'Int'"):
        run(source, "layer_norm", tensor(4, 6, dtype=torch.int32), tensor(6, dtype=torch.int32))


def test_two_stage_reduction_swaps_buffers():
    source = (
        INCLUDES
        + """
__global__ void sum_stage(const float* in, float* out, int n) {}
torch::Tensor total(torch::Tensor x) {
    x = x.contiguous();
    int n = x.numel();
    torch::Tensor current = x.view({-1});
    while (n > 1) {
        int blocks = (n + 1023) / 1024;
        auto partial = torch::empty({blocks}, x.options());
        sum_stage<<<blocks, 1024, 1024 * sizeof(float)>>>(current.data_ptr<float>(), partial.data_ptr<float>(), n);
        current = partial;
        n = blocks;
    }
    return current.reshape({});
}
"""
    )
    out, calls = run(source, "total", tensor(3_000_000))
    assert out.shape == ()
    assert [c.grid[0] for c in calls] == [2930, 3, 1]
    assert calls[1].args[0].base is calls[0].args[1].base


def test_matmul_with_dim3_and_defines():
    source = (
        INCLUDES
        + """
#define TILE 16
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
__global__ void mm(const float* A, const float* B, float* C, int M, int N, int K) {}
torch::Tensor matmul(torch::Tensor A, torch::Tensor B) {
    TORCH_CHECK(A.size(1) == B.size(0), "shapes do not fit");
    int M = A.size(0), K = A.size(1), N = B.size(1);
    auto C = torch::zeros({M, N}, torch::dtype(A.dtype()).device(A.device()));
    dim3 threads(TILE, TILE);
    dim3 grid(CEIL_DIV(N, TILE), CEIL_DIV(M, TILE));
    grid.z = 1;
    mm<<<grid, threads>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) {
        printf("launch failed: %s\\n", cudaGetErrorString(err));
        throw std::runtime_error("launch failed");
    }
    return C;
}
"""
    )
    out, (call,) = run(source, "matmul", tensor(33, 20), tensor(20, 50))
    assert out.shape == (33, 50)
    assert (call.grid, call.block) == ((4, 3, 1), (16, 16, 1))
    assert call.args[3:] == (33, 50, 20)


def test_vectorised_path_with_remainder_kernel():
    source = (
        INCLUDES
        + """
__global__ void scale4(const float4* x, float4* y, float s, int n4) {}
__global__ void scale1(const float* x, float* y, float s, int n) {}
void scale(const float* x, float* y, float s, int n, cudaStream_t stream) {
    int n4 = n / 4, rest = n % 4;
    if (n4 > 0) {
        int blocks = std::min((n4 + 255) / 256, 65535);
        scale4<<<blocks, 256, 0, stream>>>(
            reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y), s, n4);
    }
    if (rest)
        scale1<<<1, rest, 0, stream>>>(x + n4 * 4, y + n4 * 4, s, rest);
}
"""
    )
    _, calls = run(source, "scale", pointer("x"), pointer("y"), 0.5, 1027, None)
    assert [c.kernel for c in calls] == ["scale4", "scale1"]
    assert calls[0].args == (Pointer("x", 0, "float4"), Pointer("y", 0, "float4"), 0.5, 256)
    assert calls[1].args[0] == Pointer("x", 1024, "float")
    assert calls[1].block == (3, 1, 1)
    _, calls = run(source, "scale", pointer("x"), pointer("y"), 0.5, 3, None)
    assert [c.kernel for c in calls] == ["scale1"]


def test_offset_pointer_changes_its_unit():
    source = """
__global__ void k(const float4* x, const float* y, int n) {}
void f(float* x, int n) { k<<<1, 1>>>((const float4*)(x + 8), &x[3], n); }
void odd(float* x, int n) { k<<<1, 1>>>((const float4*)(x + 3), x, n); }
"""
    _, (call,) = run(source, "f", pointer("x"), 1)
    assert call.args[:2] == (Pointer("x", 2, "float4"), Pointer("x", 3, "float"))
    with pytest.raises(Unsupported, match="line 4"):
        run(source, "odd", pointer("x"), 1)


def test_pipeline_with_cuda_malloc():
    source = """
__global__ void square(const float* x, float* t, int n) {}
__global__ void add(const float* t, float* y, int n) {}
#define CUDA_CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \\
    fprintf(stderr, "%s\\n", cudaGetErrorString(e)); exit(EXIT_FAILURE); } } while (0)
extern "C" void pipeline(const float* x, float* y, int n) {
    float* tmp = nullptr;
    CUDA_CHECK(cudaMalloc(&tmp, n * sizeof(float)));
    CUDA_CHECK(cudaMemset(tmp, 0, n * sizeof(float)));
    square<<<(n + 63) / 64, 64>>>(x, tmp, n);
    add<<<(n + 63) / 64, 64>>>(tmp, y, n);
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaFree(tmp));
}
"""
    runtime = RecordingRuntime()
    HostProgram(source).call("pipeline", [pointer("x"), pointer("y"), 100], runtime)
    first, second = runtime.calls
    assert first.args[1].ctype == "float" and first.args[1].base.shape == (400,)
    assert first.args[1].base is second.args[0].base
    assert runtime.functions == ["empty", "cuda.memset"]


def test_alias_dispatches_on_a_switch():
    source = """
template <typename T, int ITEMS> __global__ void copy(const T* a, T* b, long n) {}
template <typename T>
static inline void go(const T* a, T* b, long n) {
    switch (n % 3) {
        case 0: { auto entry = &copy<T, 1>; entry<<<1, 32>>>(a, b, n); break; }
        case 1: copy<T, 2><<<1, 32>>>(a, b, n); break;
        default: copy<T, 4><<<1, 32>>>(a, b, n);
    }
}
void go_double(const double* a, double* b, long n) { go(a, b, n); }
"""
    for n, items in ((3, "1"), (4, "2"), (5, "4")):
        _, (call,) = run(source, "go_double", pointer("a", "double"), pointer("b", "double"), n)
        assert call.template_args == ("double", items)


def test_cuda_launch_kernel_with_argument_array():
    source = """
template <typename T> __global__ void k(T* p, int n, float s) {}
void f(float* p, int n) {
    float s = 2.5f;
    void* args[] = {&p, &n, &s};
    dim3 grid{(unsigned)n}, block{64};
    cudaFuncSetAttribute((const void*)k<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    cudaLaunchKernel((const void*)k<float>, grid, block, args, 128, 0);
}
"""
    _, (call,) = run(source, "f", pointer("p"), 7)
    assert call.template_args == ("float",) and call.args == (Pointer("p", 0, "float"), 7, 2.5)
    assert (call.grid, call.shared) == ((7, 1, 1), 128)


def test_helpers_templates_constants_enum():
    source = """
namespace cfg {
constexpr int kThreads = 128;
const int kItems = kThreads / 32;
enum Mode { FAST = 3, SLOW };
}
using index_t = int64_t;
typedef float real;
template <typename T> constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
inline int pick(int n, cfg::Mode mode = cfg::SLOW) { return n > 100 ? cfg::kThreads : mode; }
__global__ void k(real* p, index_t n) {}
void f(real* p, index_t n) {
    const index_t per = index_t(cfg::kThreads) * cfg::kItems;
    k<<<static_cast<unsigned>(ceil_div<index_t>(n, per)), pick(static_cast<int>(n))>>>(p, n);
}
"""
    _, (call,) = run(source, "f", pointer("p"), 1025)
    assert (call.grid, call.block) == ((3, 1, 1), (128, 1, 1))
    _, (call,) = run(source, "f", pointer("p"), 5)
    assert call.block == (4, 1, 1)


def test_lambdas():
    source = """
__global__ void k(float* p, int n) {}
void f(float* p, int n) {
    auto blocks = [](int total, int per) -> int { return (total + per - 1) / per; };
    int launched = 0;
    auto launch = [&](int threads) {
        k<<<blocks(n, threads), threads>>>(p, n);
        launched += 1;
    };
    for (int t : {32, 64}) launch(t);
    if (launched != 2) throw std::logic_error("lost a launch");
}
"""
    _, calls = run(source, "f", pointer("p"), 100)
    assert [(c.grid[0], c.block[0]) for c in calls] == [(4, 32), (2, 64)]


def test_optional_bias():
    source = (
        INCLUDES
        + """
__global__ void lin(const float* x, const float* b, float* y, int n, bool has) {}
torch::Tensor linear(torch::Tensor x, c10::optional<torch::Tensor> bias) {
    const float* b = nullptr;
    if (bias.has_value() && bias.value().defined()) b = bias->data_ptr<float>();
    auto y = torch::empty_like(x);
    lin<<<1, 32>>>(x.data_ptr<float>(), b, y.data_ptr<float>(), x.size(0), b != nullptr);
    return y;
}
"""
    )
    _, (call,) = run(source, "linear", tensor(3), None)
    assert call.args[1] is None and call.args[4] is False
    _, (call,) = run(source, "linear", tensor(3), tensor(3))
    assert call.args[1].ctype == "float" and call.args[4] is True


def test_conv_output_shape():
    source = (
        INCLUDES
        + """
__global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int K, int R, int pad) {}
torch::Tensor conv2d(torch::Tensor x, torch::Tensor w, int stride, int pad) {
    const int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
    const int K = w.size(0), R = w.size(2);
    int outH = (H + 2 * pad - R) / stride + 1;
    int outW = (W + 2 * pad - R) / stride + 1;
    auto y = torch::empty({N, K, outH, outW}, x.options());
    dim3 block(16, 16, 1);
    dim3 grid((outW + block.x - 1) / block.x, (outH + block.y - 1) / block.y, N * K);
    conv<<<grid, block>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), N, C, H, W, K, R, pad);
    return y;
}
"""
    )
    out, (call,) = run(source, "conv2d", tensor(2, 3, 20, 33), tensor(8, 3, 3, 3), 2, 1)
    assert out.shape == (2, 8, 10, 17)
    assert call.grid == (2, 1, 16)


def test_int64_shapes_do_not_wrap_but_ints_do():
    source = """
__global__ void k(float* p, long long total, unsigned u, int wrapped) {}
void f(float* p, int n) {
    long long total = (long long)n * n;
    unsigned u = -1;
    k<<<1, 1>>>(p, total, u, n * n);
}
"""
    _, (call,) = run(source, "f", pointer("p"), 70000)
    assert call.args[1:] == (4_900_000_000, 4294967295, 4_900_000_000 - 2**32)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("-7 / 2", -3), ("-7 % 3", -1), ("7 / -2", -3), ("1 << 10", 1024), ("(5 & 3) | 8 ^ 2", 11), ("~0", -1),
        ("10 > 5 > 2", 0), ("(int)3.9", 3), ("(int)-3.9", -3), ("int(7.5f / 2)", 3), ("0x10 + 010", 24), ("'a'", 97),
        ("5u - 6u > 0", 1), ("sizeof(double) * 3", 24), ("n == 5 ? 1 : 2", 1), ("std::max(n, 9)", 9), ("!n", 0),
        ("std::min<int>(n, 3L)", 3), ("n++ + ++n", 12), ("static_cast<uint8_t>(300)", 44),
        ("ceilf(2.1f)", 3), ("(int)std::ceil(n / 2.0)", 3), ("(int)log2f(8.0f)", 3), ("1'000", 1000),
        ("n && (n / 0 || true) ? 1 : 2", None), ("std::numeric_limits<int>::max()", 2**31 - 1), ("-(n)", -5),
    ],
)  # fmt: skip
def test_c_arithmetic(expression, value):
    source = f"int f(int n) {{ return {expression}; }}"
    if value is None:
        with pytest.raises(HostError, match="division by zero"):
            run(source, "f", 5)
    else:
        assert run(source, "f", 5)[0] == value


def test_float32_rounding_reaches_the_kernel():
    source = """
__global__ void k(float* p, float s, double d) {}
void f(float* p, int d) { k<<<1, 1>>>(p, 1.0f / sqrtf(d), 1.0 / d); }
"""
    _, (call,) = run(source, "f", pointer("p"), 3)
    assert call.args[1] == torch.tensor(3.0).sqrt().reciprocal().item()
    assert call.args[2] == 1 / 3


def test_structured_bindings_tie_and_pairs():
    source = """
__global__ void k(float* p, int a, int b) {}
std::tuple<int, int> split(int n) { return std::make_tuple(n / 2, n - n / 2); }
void f(float* p, int n) {
    auto [a, b] = split(n);
    int c, d;
    std::tie(c, d) = split(a);
    auto q = std::make_pair(c, d);
    k<<<a, b>>>(p, q.first, std::get<1>(q));
}
"""
    _, (call,) = run(source, "f", pointer("p"), 9)
    assert (call.grid[0], call.block[0], call.args[1:]) == (4, 5, (2, 2))


def test_reference_parameters_and_vectors():
    source = """
__global__ void k(float* p, int a) {}
void halve(int& x, const int& by) { x /= by; }
void f(float* p, std::vector<int> dims) {
    std::vector<int> seen;
    int total = 1;
    for (size_t i = 0; i < dims.size(); ++i) { total *= dims[i]; seen.push_back(dims[i]); }
    halve(total, 2);
    int strides[3] = {1, 2};
    strides[2] = seen.back();
    k<<<total, strides[2]>>>(p, strides[1]);
}
"""
    _, (call,) = run(source, "f", pointer("p"), [3, 4, 5])
    assert (call.grid[0], call.block[0], call.args[1]) == (30, 5, 2)


def test_overloads_by_pointer_type():
    source = """
__global__ void kf(float* p) {}
__global__ void kd(double* p) {}
void f(float* p) { kf<<<1, 1>>>(p); }
void f(double* p) { kd<<<1, 1>>>(p); }
"""
    assert run(source, "f", pointer("p"))[1][0].kernel == "kf"
    assert run(source, "f", pointer("p", "double"))[1][0].kernel == "kd"


def test_grid_from_device_properties():
    source = (
        INCLUDES
        + UNARY
        + """
torch::Tensor f(torch::Tensor x) {
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    auto y = torch::empty_like(x);
    int more = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    act<<<std::min<int64_t>(sms * 4, x.numel()), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), more);
    return y;
}
"""
    )
    _, (call,) = run(source, "f", tensor(10_000))
    assert call.grid == (528, 1, 1) and call.args[2] == 132


def test_conditional_compilation_on_the_host():
    source = """
#if defined(USE_BIG) && USE_BIG > 1
#define BLOCK 512
#else
#define BLOCK 64
#endif
__global__ void k(float* p) {}
void f(float* p) {
#ifdef __CUDA_ARCH__
    not host code
#elif CUDA_VERSION >= 11000
    k<<<1, BLOCK>>>(p);
#endif
}
"""
    assert run(source, "f", pointer("p"))[1][0].block == (64, 1, 1)


def test_in_place_function_without_result():
    source = (
        INCLUDES
        + UNARY
        + """
void act_(torch::Tensor& x) {
    auto n = static_cast<int>(x.numel());
    if (n == 0) return;
    act<<<(n + 31) / 32, dim3(32)>>>(x.data_ptr<float>(), x.data_ptr<float>(), n);
}
"""
    )
    out, calls = run(source, "act_", tensor(0))
    assert out is None and calls == []
    x = tensor(5)
    _, (call,) = run(source, "act_", x)
    assert call.args[0] == call.args[1] == Pointer(x, 0, "float")


def test_half_pointers_and_typed_constants():
    source = (
        INCLUDES
        + """
__global__ void k(const __half* x, __half* y, int n) {}
torch::Tensor f(torch::Tensor x) {
    TORCH_CHECK(x.scalar_type() == torch::kHalf || x.dtype() == at::kBFloat16, "half wanted");
    auto opts = torch::TensorOptions().dtype(torch::kFloat16).device(torch::kCUDA, 0).requires_grad(false);
    torch::Tensor y = torch::zeros({x.size(0), 2}, opts);
    k<<<1, 1>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()), (__half*)y.data_ptr<at::Half>(), 1);
    return y;
}
"""
    )
    y, (call,) = run(source, "f", tensor(4, dtype=torch.float16))
    assert y.dtype == torch.float16 and y.shape == (4, 2)
    assert call.args[0].ctype == "__half"
    with pytest.raises(HostError, match="half wanted"):
        run(source, "f", tensor(4))


def test_torch_functions_and_operators_go_to_the_runtime():
    source = (
        INCLUDES
        + UNARY
        + """
torch::Tensor f(torch::Tensor x, torch::Tensor w) {
    auto h = torch::matmul(x, w.t()) + 1.0;
    auto s = h.sum(-1, true);
    auto y = torch::full({h.size(0)}, 2.0, h.options());
    act<<<1, 1>>>(s.data_ptr<float>(), y.data_ptr<float>(), 1);
    return at::relu(y).to(torch::kFloat64);
}
"""
    )
    out, _ = run(source, "f", tensor(3, 4), tensor(5, 4))
    assert out.shape == (3,) and out.dtype == torch.float64


def test_template_function_takes_bindings():
    source = """
template <typename T, int N> __global__ void k(T* p) {}
template <typename T, int N = 8> void f(T* p) { k<T, N * 2><<<N, 1, N * sizeof(T)>>>(p); }
"""
    _, (call,) = run(source, "f", pointer("p", "double"))
    assert call.template_args == ("double", "16")
    _, (call,) = run(source, "f", pointer("p", "float"), T="float", N="4")
    assert call.template_args == ("float", "8") and call.shared == 16


def test_user_types_in_template_arguments():
    source = """
struct Relu { __device__ float operator()(float x) const { return x; } };
template <typename T, typename Op, bool kVec> __global__ void map(const T* x, T* y, int n) {}
template <typename Op> void launch(const float* x, float* y, int n) { map<float, Op, true><<<1, n>>>(x, y, n); }
void relu(const float* x, float* y, int n) { launch<Relu>(x, y, n); }
"""
    _, (call,) = run(source, "relu", pointer("x"), pointer("y"), 4)
    assert call.template_args == ("float", "Relu", "true")


def test_do_while_break_continue_and_shadowing():
    source = """
__global__ void k(float* p, int i) {}
void f(float* p, int n) {
    int i = 0;
    do {
        if (i == 2) { ++i; continue; }
        if (i > 4) break;
        { int i = 99; (void)i; }
        k<<<1, 1>>>(p, i++);
    } while (true);
}
"""
    assert [c.args[1] for c in run(source, "f", pointer("p"), 1)[1]] == [0, 1, 3, 4]


def test_time_steps_launch_many_times():
    source = """
__global__ void step(const float* a, float* b, int n) {}
void heat(float* a, float* b, int n, int steps) {
    for (int s = 0; s < steps; s++) {
        step<<<(n + 255) / 256, 256>>>(a, b, n);
        float* t = a; a = b; b = t;
    }
}
"""
    _, calls = run(source, "heat", pointer("a"), pointer("b"), 10, 5)
    assert [c.args[0].base for c in calls] == ["a", "b", "a", "b", "a"]


def test_size_given_as_one_number():
    source = (
        INCLUDES
        + "torch::Tensor f(torch::Tensor x) { return torch::zeros(x.size(0) * 2, torch::dtype(torch::kInt32)); }"
    )
    out, _ = run(source, "f", tensor(3))
    assert out.shape == (6,) and out.dtype == torch.int32
