"""Try every GPU build path and the clock on this machine; one PASS or FAIL line each, with times.

    PYTHONPATH=engine python tests/bench/check_gpu_build.py [--skip-nvcc] [--only WORDS] [--cache FOLDER]

Needs an NVIDIA GPU, torch with CUDA and NVRTC; the nvcc check also needs the toolkit. Exit status 1 when a check fails.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dice_engine.verify import bench, gpu
from dice_engine.verify.build import cuda_driver
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.host import HostExtension, build_host
from dice_engine.verify.build.interface import BuildError, LaunchError
from dice_engine.verify.build.nvcc import build_nvcc
from dice_engine.verify.build.nvrtc import TORCH_FLAGS, NvrtcModule, build_nvrtc, warm
from dice_engine.verify.clock import GpuClock

ROOT = Path(__file__).resolve().parents[2]
CHECKS: dict[str, Callable[[], str]] = {}
CACHE = Path(tempfile.gettempdir()) / "dice-headers"


def check(function: Callable[[], str]) -> Callable[[], str]:
    CHECKS[function.__name__] = function
    return function


def expect(truth: object, words: str) -> None:
    if not truth:
        raise AssertionError(words)


def refuses(kind: type[Exception], action: Callable[[], Any]) -> Any:
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def workdir() -> Path:
    return Path(tempfile.mkdtemp(prefix="dice-check-"))


def milliseconds(action: Callable[[], Any], times: int = 5) -> float:
    spans = []
    for _ in range(times):
        begun = time.perf_counter()
        action()
        spans.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(spans)


SAXPY = """
__global__ void saxpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
MIXED = """
#include <cuda_fp16.h>
#include <cstdint>
#include <algorithm>
#include <cmath>
__constant__ float weights[4];
template <typename T, int N>
__global__ void mixed(const T* __restrict__ x, T* y, double a, int64_t n, bool twice, uint8_t k, unsigned long long m) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * float(a) * N * (twice ? 2 : 1) + k + std::min<float>(m, 7.0f));
}
__global__ void weigh(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= weights[threadIdx.x % 4]; }
__global__ void half_value(__half v, __half* out) { out[0] = __hadd(v, v); }
"""
SHARED = """
extern __shared__ float room[];
__global__ void reverse(float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = room[n - 1 - i];
}
"""
LIBRARIES = {
    "cooperative_groups": """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void total(const float* x, float* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = cg::reduce(warp, x[threadIdx.x], cg::plus<float>());
  if (threadIdx.x == 0) out[0] = sum;
}
""",
    "cub": """
#include <cub/cub.cuh>
__global__ void total(const float* x, float* out) {
  using Reduce = cub::BlockReduce<float, 32>;
  __shared__ typename Reduce::TempStorage room;
  float sum = Reduce(room).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) out[0] = sum;
}
""",
    "std": """
#include <limits>
#include <type_traits>
#include <cfloat>
template <typename T>
__device__ T zero() { return std::is_same<T, float>::value ? T(0) : std::numeric_limits<T>::max(); }
__global__ void total(const float* x, float* out) {
  float sum = zero<float>();
  for (int i = 0; i < 32; ++i) sum += std::fabs(x[i]) > FLT_MAX ? INFINITY : x[i];
  if (threadIdx.x == 0) out[0] = sum;
}
""",
}
HOST = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")

__constant__ float weights[4];

template <typename T, int N>
__global__ void __launch_bounds__(128) scale(const T* __restrict__ x, T* y, T s, int64_t n, bool twice) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s * T(N) * (twice ? T(2) : T(1));
}
__global__ void weigh(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= weights[threadIdx.x % 4]; }
extern __shared__ float room[];
__global__ void reverse(float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = room[n - 1 - i];
}

std::tuple<torch::Tensor, int64_t> run(const torch::Tensor& x, double s, bool twice, c10::optional<torch::Tensor> out) {
  CHECK_CUDA(x);
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = out.has_value() ? *out : torch::empty_like(x);
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  int64_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
    scale<scalar_t, 3><<<(n + 127) / 128, 128, 0, stream>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(),
                                                            static_cast<scalar_t>(s), n, twice);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return std::make_tuple(y, n);
}
torch::Tensor weighted(torch::Tensor x, std::vector<double> w) {
  float host[4];
  for (int i = 0; i < 4; ++i) host[i] = float(w[i]);
  cudaMemcpyToSymbol(weights, host, sizeof(host));
  weigh<<<1, 256>>>(x.data_ptr<float>(), x.numel());
  return x;
}
torch::Tensor reversed(torch::Tensor x) {
  auto y = x.clone();
  size_t bytes = x.numel() * sizeof(float);
  cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  reverse<<<1, 256, bytes, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), int(x.numel()));
  return y;
}
void unchecked(torch::Tensor x) {
  scale<float, 1><<<1, 4096>>>(x.data_ptr<float>(), x.data_ptr<float>(), 1.f, 1, false);
}
void checked(torch::Tensor x) {
  scale<float, 1><<<1, 4096>>>(x.data_ptr<float>(), x.data_ptr<float>(), 1.f, 1, false);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
void raw(float* x, int n, cudaStream_t st) { scale<float, 1><<<1, 64, 0, st>>>(x, x, 2.f, n, false); }
"""
COPY = """
__global__ void copy(const float4* x, float4* y, long n) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long)blockDim.x) y[i] = x[i];
}
"""


@check
def environment() -> str:
    described = gpu.describe(torch.cuda.current_device())
    expect(cuda_driver.context().arch.startswith("sm_"), "no architecture")
    expect(described is None or described.arch == cuda_driver.context().arch, "NVML and CUDA disagree")
    return f"{described or torch.cuda.get_device_name()}; torch {torch.__version__}, {cuda_driver.context().arch}"


@check
def nvrtc_plain() -> str:
    first = build_nvrtc(split(SAXPY)).build_seconds * 1e3
    later = milliseconds(lambda: build_nvrtc(split(SAXPY)))
    module = build_nvrtc(split(SAXPY))
    x, y = torch.randn(100_003, device="cuda"), torch.randn(100_003, device="cuda")
    wanted = y + 2.5 * x
    arguments = (x.data_ptr(), y.data_ptr(), 2.5, x.numel())
    module.launch("saxpy", (), (391, 1, 1), (256, 1, 1), 0, arguments)
    module.synchronize()
    torch.testing.assert_close(y, wanted)
    prepared = module.prepare("saxpy", (), (1, 1, 1), (32, 1, 1), 0, arguments)
    slow = milliseconds(lambda: module.launch("saxpy", (), (1, 1, 1), (32, 1, 1), 0, arguments), 200)
    fast = milliseconds(prepared, 200)
    module.synchronize()
    return f"build {first:.1f} ms first, {later:.1f} ms later; launch {slow * 1e3:.1f} us, prepared {fast * 1e3:.1f} us"


@check
def nvrtc_types() -> str:
    module = build_nvrtc(split(MIXED), [("mixed", ("float", "3"))])
    for dtype, name in ((torch.float32, "float"), (torch.float64, "double"), (torch.float16, "__half")):
        x = torch.randn(1000, device="cuda").to(dtype)
        y = torch.empty_like(x)
        values = (x.data_ptr(), y.data_ptr(), 0.5, 1000, True, 200, 1 << 40)
        module.launch("mixed", (name, "3"), (8, 1, 1), (128, 1, 1), 0, values)
        module.synchronize()
        wanted = (x.float() * 0.5 * 3 * 2 + 200 + 7).to(dtype)
        torch.testing.assert_close(y.float(), wanted.float(), rtol=2e-3, atol=2e-3)
    address, size = module.symbol("weights")
    expect(size == 16, f"__constant__ of {size} bytes")
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
    api = cuda_driver.driver()
    cuda_driver.check(api.cuMemcpyHtoD(address, weights.data_ptr(), 16), "copy")
    x = torch.ones(8, device="cuda")
    module.launch("weigh", (), (1, 1, 1), (32, 1, 1), 0, (x.data_ptr(), 8))
    expect(x.tolist() == [1, 2, 3, 4, 1, 2, 3, 4], f"constants: {x.tolist()}")
    half = torch.zeros(1, dtype=torch.float16, device="cuda")
    module.launch("half_value", (), (1, 1, 1), (1, 1, 1), 0, (1.5, half.data_ptr()))
    expect(half.item() == 3.0, f"half by value: {half.item()}")
    return "float, double, half, bool, 8 to 64 bits, constants, half by value; two instances on demand"


@check
def nvrtc_shared_and_resources() -> str:
    module = build_nvrtc(split(SHARED))
    x = torch.randn(25_000, device="cuda")
    wanted = x.flip(0)
    module.launch("reverse", (), (1, 1, 1), (256, 1, 1), 100_000, (x.data_ptr(), 25_000))
    module.synchronize()
    expect(torch.equal(x, wanted), "100 KB of shared memory: wrong result")
    too_much = refuses(
        LaunchError,
        lambda: module.launch("reverse", (), (1, 1, 1), (256, 1, 1), 400_000, (x.data_ptr(), 1)),
    )
    bad = refuses(
        LaunchError, lambda: module.launch("reverse", (), (1, 1, 1), (2048, 1, 1), 0, (x.data_ptr(), 1))
    )
    expect(bad.name == "cudaErrorInvalidConfiguration" and not bad.sticky, bad.name)
    missing = refuses(LaunchError, lambda: module.launch("nope", (), (1, 1, 1), (1, 1, 1), 0, ()))
    expect(missing.name == "cudaErrorInvalidDeviceFunction", missing.name)
    function = module.function("reverse")
    full, half = function.occupancy(256, 0), function.occupancy(256, 100_000)
    expect(0 < half < full <= 1, f"occupancy {full}, {half}")
    static = next(iter(module.report().values()))
    expect(function.resources.registers == static.registers, "driver and ptxas disagree on registers")
    torch.zeros(1, device="cuda").item()  # the context still works
    return f"{function.resources}; occupancy {full:.2f}, {half:.2f} at 100 kB; too much: {too_much.name}"


@check
def nvrtc_libraries() -> str:
    said = []
    for name, source in LIBRARIES.items():
        begun = time.perf_counter()
        module = build_nvrtc(split(source))
        seconds = time.perf_counter() - begun
        x, out = torch.randn(32, device="cuda"), torch.zeros(1, device="cuda")
        module.launch("total", (), (1, 1, 1), (32, 1, 1), 0, (x.data_ptr(), out.data_ptr()))
        module.synchronize()
        torch.testing.assert_close(out[0], x.sum(), rtol=1e-4, atol=1e-4)
        said.append(f"{name} {seconds * 1e3:.0f} ms")
    return ", ".join(said)


@check
def nvrtc_warm() -> str:
    """Cooperative groups with its header precompiled, as processes forked from a warmed one see it."""
    before = build_nvrtc(split(LIBRARIES["cooperative_groups"])).build_seconds
    begun = time.perf_counter()
    warm(cuda_driver.context().arch, workdir(), [()])
    seconds = time.perf_counter() - begun
    after = build_nvrtc(split(LIBRARIES["cooperative_groups"])).build_seconds
    expect(after < before, f"{after:.2f} s after warming, {before:.2f} s before")
    return f"{before * 1e3:.0f} ms before, {after * 1e3:.0f} ms after; warming took {seconds * 1e3:.0f} ms"


@check
def nvrtc_streams() -> str:
    """A launch under torch.cuda.stream goes to that stream."""
    module = build_nvrtc(split(SAXPY))
    x, y = torch.ones(1 << 24, device="cuda"), torch.zeros(1 << 24, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(50):
            module.launch(
                "saxpy", (), (1 << 16, 1, 1), (256, 1, 1), 0, (x.data_ptr(), y.data_ptr(), 1.0, 1 << 24)
            )
        busy = not side.query()
    side.synchronize()
    expect(y.min().item() == y.max().item() == 50, "lost launches")
    return f"50 launches on a side stream, {'still running' if busy else 'finished'} when all were enqueued"


@check
def sticky_errors() -> str:
    """In a process of its own: its context is lost afterwards."""
    program = f"""
import sys; sys.path.insert(0, {str(ROOT / "engine")!r})
import torch
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.interface import LaunchError
from dice_engine.verify.build.nvrtc import build_nvrtc
torch.zeros(1, device="cuda")
module = build_nvrtc(split("__global__ void bad(float* x) {{ x[1L << 40] = 1; }}"))
try:
    module.launch("bad", (), (1, 1, 1), (1, 1, 1), 0, (16,))
    module.synchronize()
except LaunchError as error:
    print(error.name, error.sticky)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    expect(done.stdout.split() == ["cudaErrorIllegalAddress", "True"], done.stdout + done.stderr[-500:])
    return done.stdout.strip()


@check
def host_build() -> str:
    begun = time.perf_counter()
    extension = _host(HOST, ["run", "weighted", "reversed", "unchecked", "checked", "raw"])
    first = time.perf_counter() - begun
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(1000, dtype=dtype, device="cuda")
        y, n = extension.run(x, 2.0, True, None)
        torch.testing.assert_close(y, x * 12)
        expect(n == 1000, f"{n} elements")
    expect(extension.launch_count == 2, f"{extension.launch_count} launches counted")
    out = torch.empty(10, device="cuda")
    y, _ = extension.run(torch.ones(10, device="cuda"), 1, False, out)
    expect(y.data_ptr() == out.data_ptr() and out.tolist() == [3] * 10, "optional tensor")
    expect(
        extension.weighted(torch.ones(4, device="cuda"), [1, 2, 3, 4]).tolist() == [1, 2, 3, 4], "constants"
    )
    x = torch.randn(25_000, device="cuda")
    expect(torch.equal(extension.reversed(x), x.flip(0)), "large shared memory")
    unchecked = refuses(LaunchError, lambda: extension.unchecked(out))
    expect("InvalidValue" in unchecked.name or "InvalidConfiguration" in unchecked.name, unchecked.name)
    words = str(refuses(RuntimeError, lambda: extension.checked(out))).splitlines()[0]
    extension.run(x, 1.0, False, None)  # no error is left over
    raw = torch.ones(64, device="cuda")
    extension.raw(raw.data_ptr(), 64, torch.cuda.current_stream().cuda_stream)
    expect(raw.sum().item() == 128, f"raw pointers: {raw.sum().item()}")
    refuses(RuntimeError, lambda: extension.run(torch.ones(3), 1.0, False, None))
    extension.mode = "fail"
    refuses(RuntimeError, lambda: extension.run(x, 1.0, False, None))
    extension.mode = "skip"
    extension.run(x, 1.0, False, None)
    extension.mode = "run"
    extension.synchronize()
    call = milliseconds(lambda: extension.run(x, 1.0, False, None), 200)
    torch.cuda.synchronize()
    later = [_host(HOST + f"// {i}\n", ["run"]).build_seconds for i in range(3)]
    return (
        f"first {first:.1f} s with headers, later {min(later):.2f}-{max(later):.2f} s, call {call * 1e3:.1f} us; "
        f"unchecked launch: {unchecked.name}; checked: {words[:60]}"
    )


def _host(source: str, functions: list[str]) -> HostExtension:
    module = build_nvrtc(split(source), extra_flags=TORCH_FLAGS)
    return build_host(source, functions, module, workdir(), CACHE)


@check
def host_errors() -> str:
    broken = refuses(BuildError, lambda: _host(HOST.replace("x.numel();", "x.numle();", 1), ["run"]))
    line = next(i for i, text in enumerate(HOST.splitlines(), 1) if "x.numel();" in text)
    expect(f"kernel.cu:{line}:" in str(broken), str(broken))
    # A template is compiled when it is launched.
    late = _host(HOST.replace("y[i] = x[i] * s", "y[i] = x[i] * q", 1), ["run"])
    kernel = refuses(BuildError, lambda: late.run(torch.ones(8, device="cuda"), 1.0, False, None))
    expect("kernel.cu(" in str(kernel) and '"q"' in str(kernel), str(kernel))
    return f"{broken}; {kernel}"


@check
def nvcc_build() -> str:
    begun = time.perf_counter()
    extension = build_nvcc(HOST, ["run", "weighted", "unchecked", "raw"], workdir())
    seconds = time.perf_counter() - begun
    x = torch.randn(1000, device="cuda")
    y, _ = extension.run(x, 2.0, True, None)
    torch.testing.assert_close(y, x * 12)
    expect(extension.launch_count == 1, f"{extension.launch_count} launches counted")
    raw = torch.ones(64, device="cuda")
    extension.raw(raw.data_ptr(), 64, 0)
    expect(raw.sum().item() == 128, f"raw pointers: {raw.sum().item()}")
    expect(
        extension.weighted(torch.ones(4, device="cuda"), [1, 2, 3, 4]).tolist() == [1, 2, 3, 4], "constants"
    )
    unchecked = refuses(LaunchError, lambda: extension.unchecked(x))
    torch.zeros(1, device="cuda").item()
    extension.mode = "fail"
    refuses((LaunchError, RuntimeError), lambda: extension.run(x, 1.0, False, None))  # type: ignore[arg-type]
    extension.mode = "skip"
    extension.run(x, 1.0, False, None)
    extension.mode = "run"
    extension.synchronize()
    return f"{seconds:.1f} s; unchecked launch: {unchecked.name}; {len(extension.resources)} kernels reported"


def copier(module: NvrtcModule, elements: int) -> Callable[[], None]:
    x = torch.randn(elements, device="cuda")
    y = torch.empty_like(x)
    launch = module.prepare(
        "copy", (), (132 * 8, 1, 1), (256, 1, 1), 0, (x.data_ptr(), y.data_ptr(), elements // 4)
    )

    def call(keep: tuple[torch.Tensor, torch.Tensor] = (x, y)) -> None:
        launch()

    return call


def compare(
    clock: GpuClock, sides: dict[bench.Side, Callable[[], None]], pairs: int, seed: int
) -> bench.RatioInterval:
    times: dict[str, list[float]] = {"reference": [], "candidate": []}
    for side in bench.schedule(pairs, seed):
        times[side] += clock.measure(sides[side], n=1).ms
    return bench.ratio_interval(times["reference"], times["candidate"], seed)


@check
def clock_basics() -> str:
    clock = GpuClock()
    module = build_nvrtc(split(COPY))
    big = copier(module, 64 << 20)
    warm = clock.warm_up(big)
    timing = clock.measure(big, n=30)
    rate = 2 * 4 * (64 << 20) / (statistics.median(timing.ms) * 1e-3)
    bandwidth = gpu.copy_bandwidth()
    expect(0.5 < rate / bandwidth < 1.2, f"copy at {rate / 1e12:.2f} TB/s, torch's at {bandwidth / 1e12:.2f}")
    expect(
        timing.consistent and not timing.escaped, f"consistent {timing.consistent}, escaped {timing.escaped}"
    )
    small = clock.measure(copier(module, 1 << 10), n=30)
    expect(small.consistent and not small.escaped, "a small kernel is called escaped")
    empty = clock.measure(lambda: None, n=30)
    hot = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    middle = copier(module, 4 << 20)
    middle()
    hot[0].record()
    middle()
    hot[1].record()
    torch.cuda.synchronize()
    cold = statistics.median(clock.measure(middle, n=30).ms)
    return (
        f"{warm} warm-up calls; 512 MB copy {statistics.median(timing.ms):.4f} ms "
        f"(spread {100 * statistics.pstdev(timing.ms) / statistics.mean(timing.ms):.2f} %), {rate / 1e12:.2f} of "
        f"{bandwidth / 1e12:.2f} TB/s; 4 kB copy {statistics.median(small.ms) * 1e3:.1f} us; nothing "
        f"{statistics.median(empty.ms) * 1e3:.1f} us; 32 MB copy {hot[0].elapsed_time(hot[1]) * 1e3:.1f} us hot, "
        f"{cold * 1e3:.1f} us cold; idle wait {clock.idle_wait() * 1e3:.1f} us"
    )


@check
def clock_sees_other_streams() -> str:
    clock = GpuClock()
    module = build_nvrtc(split(COPY))
    work, side = copier(module, 64 << 20), torch.cuda.Stream()

    def escape() -> None:
        with torch.cuda.stream(side):
            work()

    late = []
    for call in (work, escape, work, escape):
        clock.warm_up(call)
        spans = [clock._once(call) for _ in range(20)]
        late.append(statistics.median(end_all - end for end, end_all, _ in spans) - clock.idle_wait())
    seen = "; ".join(f"{ms * 1e3:.1f}" for ms in late)
    honest, hidden = clock.measure(work, n=20), clock.measure(escape, n=20)
    words = f"honest {honest.escaped}, hidden {hidden.escaped}; late by us: {seen}"
    ratio = statistics.median(hidden.ms) / statistics.median(honest.ms)
    expect(
        not honest.escaped and hidden.escaped and 0.7 < ratio < 1.5, f"{words}; timed at {ratio:.2f} of it"
    )
    tiny = copier(module, 1 << 12)

    def escape_tiny() -> None:
        with torch.cuda.stream(side):
            tiny()

    small = clock.measure(escape_tiny, n=40)
    return f"{words}; hidden work timed at {ratio:.2f} of the honest time; a tiny one seen as escaped: {small.escaped}"


@check
def identical_kernels() -> str:
    """30 comparisons of a kernel with itself: at most one gain."""
    clock = GpuClock()
    module = build_nvrtc(split(COPY))
    gains, ratios = 0, []
    for trial in range(30):
        elements = (1 << 14, 1 << 20, 8 << 20)[trial % 3]
        sides: dict[bench.Side, Callable[[], None]] = {
            "reference": copier(module, elements),
            "candidate": copier(module, elements),
        }
        if trial < 3:
            clock.warm_up(sides["reference"])
        found = compare(clock, sides, 25, trial)
        gains += bench.is_gain(found)
        ratios.append(found.ratio)
    expect(gains <= 1, f"{gains} gains; ratios {[round(r, 3) for r in ratios]}")
    return f"{gains} of 30 called a gain; ratios {min(ratios):.3f} to {max(ratios):.3f}"


@check
def five_percent() -> str:
    """10 comparisons against 5 % more work: at least 8 gains."""
    clock = GpuClock()
    module = build_nvrtc(split(COPY))
    found = []
    for trial in range(10):
        sides: dict[bench.Side, Callable[[], None]] = {
            "reference": copier(module, 4 * int(8e6 * 1.06)),
            "candidate": copier(module, 4 * 8_000_000),
        }
        if trial == 0:
            clock.warm_up(sides["reference"])
        found.append(compare(clock, sides, 25, trial))
    gains = sum(map(bench.is_gain, found))
    expect(gains >= 8, f"{gains} of 10; {found}")
    return (
        f"{gains} of 10 found, ratios {min(f.ratio for f in found):.3f} to {max(f.ratio for f in found):.3f}"
    )


@check
def lock_excludes() -> str:
    program = f"""
import sys; sys.path.insert(0, {str(ROOT / "engine")!r})
from dice_engine.verify.gpu import gpu_lock
with gpu_lock("check"):
    print("held", flush=True); sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    busy = refuses(Exception, lambda: gpu.gpu_lock("check", timeout=0.2).__enter__())
    holder.kill()
    holder.wait()
    begun = time.perf_counter()
    with gpu.gpu_lock("check", timeout=5):
        waited = time.perf_counter() - begun
    return f"{busy}; free {waited * 1e3:.0f} ms after its holder was killed"


def main() -> int:
    global CACHE
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--skip-nvcc", action="store_true", help="leave out the minute of nvcc")
    parser.add_argument("--only", default="", help="checks whose name contains this")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the precompiled headers")
    options = parser.parse_args()
    CACHE = options.cache
    if not torch.cuda.is_available():
        print("SKIP everything: torch sees no CUDA GPU")
        return 0
    torch.zeros(1, device="cuda")
    failed = 0
    for name, action in CHECKS.items():
        if options.only not in name or (options.skip_nvcc and name == "nvcc_build"):
            continue
        begun = time.perf_counter()
        try:
            said, mark = action(), "PASS"
        except Exception as error:  # a check that fails must not stop the others
            failed += 1
            mark, said = "FAIL", f"{type(error).__name__}: {error}"
            frames = traceback.extract_tb(error.__traceback__)
            said += "".join(f"\n       at {Path(f.filename).name}:{f.lineno} {f.line}" for f in frames[1:])
            said += f"\n{getattr(error, 'log', '')[:1500]}"
        print(f"{mark} {name} ({time.perf_counter() - begun:.1f} s): {said}", flush=True)
    print(f"{'FAIL' if failed else 'PASS'}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
