"""The CPU backend where things go wrong: builds, launches, barriers, races; and the shapes of sources it must take."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dice_engine.verify.build.cpu import CpuModule, build_cpu
from dice_engine.verify.build.device_source import split
from dice_engine.verify.build.interface import BuildError, InfraError, LaunchError
from dice_engine.verify.build.process import run_compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

GENERIC = """#include <cuda_runtime.h>
#include <assert.h>

__global__ void divergent(float* x) {
  if (threadIdx.x < 16) {
    x[threadIdx.x] = 1.0f;
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void uneven_loop(float* x, int n) {
  __shared__ float s[64];
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    s[threadIdx.x] = x[i];
    __syncthreads();
  }
  s[threadIdx.x] = 0.0f;
  __syncthreads();
}
__global__ void racy_shift(const int* x, int* out, int n) {
  __shared__ int s[128];
  s[threadIdx.x] = x[threadIdx.x];
  int neighbour = threadIdx.x + 1 < n ? s[threadIdx.x + 1] : 0;  // the barrier is missing
  __syncthreads();
  out[threadIdx.x] = neighbour;
}
__global__ void block_race(int* last) { *last = blockIdx.x; }
__global__ void unread_shared(float* out) {
  extern __shared__ float s[];
  out[threadIdx.x] = s[threadIdx.x];
}
__global__ void asserts(int* x) { assert(x[threadIdx.x] < 5 && "too large"); }
__global__ void traps(int* x) { if (x[threadIdx.x] == 7) __trap(); }
__global__ void waits_then_asserts(int* x) {
  __syncthreads();
  assert(x[threadIdx.x] < 5);
}
__global__ void sloppy_shuffle(float* x) {
  if (threadIdx.x < 8) {  // the mask names lanes that never come
    float v = x[threadIdx.x];
    for (int o = 4; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o, 8);
    if (threadIdx.x == 0) x[0] = v;
  }
  __syncthreads();
}
__global__ void deep(float* x) {
  float local[4096];
  for (int i = 0; i < 4096; ++i) local[i] = i * x[0];
  __syncthreads();
  x[threadIdx.x + 1] = local[threadIdx.x * 16];
}
template <typename T, int N>
__global__ void fill(T* x) { if (threadIdx.x < N) x[threadIdx.x] = T(N); }
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> CpuModule:
    return build_cpu(split(GENERIC), tmp_path_factory.mktemp("cpu"))


def launch(
    module: CpuModule, kernel: str, block: int, *args: Any, grid: int = 1, shared: int = 0, **more: Any
) -> None:
    plain = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
    module.launch(kernel, more.get("template", ()), (grid, 1, 1), (block, 1, 1), shared, plain)


def build(source: str, workdir: Path) -> CpuModule:
    return build_cpu(split(source), workdir)


def test_divergent_barriers_are_a_launch_error_that_names_both_lines(module: CpuModule) -> None:
    module.set_order("forward")
    with pytest.raises(
        LaunchError, match=r"divergent __syncthreads: thread \(16,0,0\).* waits at line 9, others at line 7"
    ):
        launch(module, "divergent", 32, np.zeros(32, np.float32))
    with pytest.raises(LaunchError, match="divergent __syncthreads"):
        launch(module, "uneven_loop", 64, np.zeros(100, np.float32), 100)
    launch(module, "uneven_loop", 64, np.zeros(128, np.float32), 128)  # the same barrier, evenly: fine


def test_the_order_of_threads_shows_a_race(module: CpuModule) -> None:
    x = np.arange(1, 129, dtype=np.int32)
    seen = set()
    for kind, seed in (("forward", 0), ("reverse", 0), ("shuffled", 1), ("shuffled", 2)):
        out = np.zeros(128, np.int32)
        module.set_order(kind, seed)  # type: ignore[arg-type]
        launch(module, "racy_shift", 128, x, out, 128)
        seen.add(tuple(out))
    assert len(seen) > 1
    last = {}
    for kind in ("forward", "reverse"):
        out = np.zeros(1, np.int32)
        module.set_order(kind)
        launch(module, "block_race", 4, out, grid=10)
        last[kind] = int(out[0])
    assert last == {"forward": 9, "reverse": 0}


def test_fresh_shared_memory_is_not_zero(module: CpuModule) -> None:
    out = np.zeros(32, np.float32)
    launch(module, "unread_shared", 32, out, shared=128)
    assert np.isnan(out).all()


def test_assert_and_trap_are_launch_errors_and_the_module_stays_usable(module: CpuModule) -> None:
    good, bad = np.array([1, 2, 3, 4], np.int32), np.array([1, 2, 7, 4], np.int32)
    with pytest.raises(LaunchError, match=r"cudaErrorAssert.*line 33: assertion .*too large.* failed"):
        launch(module, "asserts", 4, bad)
    with pytest.raises(LaunchError, match="__trap"):
        launch(module, "traps", 4, bad)
    with pytest.raises(LaunchError, match="cudaErrorAssert"):
        launch(module, "waits_then_asserts", 4, bad)
    for kernel in ("asserts", "traps", "waits_then_asserts"):
        launch(module, kernel, 4, good)
    module.synchronize()


def test_a_mask_that_names_absent_lanes_runs_with_those_that_came(module: CpuModule) -> None:
    x = np.arange(32, dtype=np.float32)
    launch(module, "sloppy_shuffle", 32, x)
    assert x[0] == 28


def test_local_arrays_fit_a_fiber(module: CpuModule) -> None:
    x = np.ones(257, np.float32)
    launch(module, "deep", 256, x)
    np.testing.assert_array_equal(x[1:], np.arange(256) * 16)


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((1, 1, 1), (1025, 1, 1), 0),
        ((1, 1, 1), (64, 32, 1), 0),
        ((1, 1, 1), (1, 1, 65), 0),
        ((0, 1, 1), (32, 1, 1), 0),
        ((1, 65536, 1), (32, 1, 1), 0),
        ((1, 1, 1), (32, 1, 1), 300_000),
    ],
)
def test_impossible_launches_are_refused_as_by_cuda(
    module: CpuModule, grid: Any, block: Any, shared: int
) -> None:
    with pytest.raises(LaunchError, match="cudaErrorInvalidConfiguration: invalid configuration argument"):
        module.launch("block_race", (), grid, block, shared, [0])


def test_unknown_kernels_and_wrong_argument_counts_are_refused(module: CpuModule) -> None:
    with pytest.raises(LaunchError, match="no kernel named nothing"):
        launch(module, "nothing", 1)
    with pytest.raises(LaunchError, match="block_race has 1 parameters, got 2"):
        launch(module, "block_race", 1, 1, 2)


def test_an_instantiation_that_was_not_asked_for_is_built_on_demand(module: CpuModule) -> None:
    x = np.zeros(8, np.float64)
    launch(module, "fill", 8, x, template=("double", "5"))
    assert list(x) == [5] * 5 + [0] * 3
    with pytest.raises(BuildError, match="nonsense"):
        launch(module, "fill", 8, x, template=("nonsense", "5"))


def test_compile_errors_speak_of_the_users_lines(tmp_path: Path) -> None:
    source = "#include <torch/extension.h>\n\n__global__ void k(float* x) {\n  x[0] = undeclared_thing;\n}\n"
    with pytest.raises(BuildError) as caught:
        build(source, tmp_path)
    assert "kernel.cu:4:10: error:" in str(caught.value) and "undeclared_thing" in str(caught.value)
    assert str(tmp_path) not in caught.value.log and "cpu_shim" not in caught.value.log


def test_link_errors_are_build_errors(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="missing") as caught:
        build(
            "__device__ float missing(float);\n__global__ void k(float* x) { x[0] = missing(x[0]); }\n",
            tmp_path,
        )
    assert "/tmp" not in caught.value.log and str(tmp_path) not in caught.value.log


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(r));', "inline PTX assembly"),
        ("typedef cub::BlockReduce<float, 128> B;", "CUB"),
        ("nvcuda::wmma::fill_fragment(f, 0.0f);", "wmma"),
        ("curandState s; curand_init(0, 0, 0, &s);", "cuRAND"),
        ("cublasSgemm(h);", "cuBLAS"),
    ],
)
def test_libraries_without_a_cpu_form_are_named(tmp_path: Path, text: str, library: str) -> None:
    with pytest.raises(BuildError, match=rf"line 2: {library}.* not supported on the CPU backend"):
        build(f"__global__ void k(float* x) {{\n  {text}\n}}\n", tmp_path)


def test_the_precompiled_shim_is_made_once_and_missed_by_nobody(tmp_path: Path) -> None:
    source = "__global__ void k(float* x) { x[threadIdx.x] += 1; }\n"
    cache = tmp_path / "cache"
    for folder in ("first", "second"):
        module = build_cpu(split(source), tmp_path / folder, cache_dir=cache)
        x = np.zeros(4, np.float32)
        launch(module, "k", 4, x)
        assert list(x) == [1, 1, 1, 1]
    (made,) = cache.iterdir()
    assert (made / "dice_cpu.h.gch").exists()
    unusable = tmp_path / "file"
    unusable.write_text("")
    build_cpu(split(source), tmp_path / "third", cache_dir=unusable)


def test_no_compiler_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="install g\\+\\+"):
        build(GENERIC, tmp_path)


def test_macro_made_kernels_and_over_aligned_shared_memory(tmp_path: Path) -> None:
    source = """
#define GRID_WALK(ix, lim) \\
  for (int ix = blockIdx.x * blockDim.x + threadIdx.x; ix < (lim); ix += blockDim.x * gridDim.x)
#define MAKE_UNARY(fn, expr) \\
  __global__ void fn##_kern(const float* in, float* out, int n) { \\
    GRID_WALK(i, n) { const float x = in[i]; out[i] = (expr); }   \\
  }
MAKE_UNARY(cube, x * x * x)
MAKE_UNARY(soft, x / (1.0f + fabsf(x)))

template <typename Elem, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 2)
    row_peak(const Elem* __restrict__ table, Elem* __restrict__ peaks, int cols) {
  extern __shared__ __align__(16) unsigned char scratch[];
  Elem* part = reinterpret_cast<Elem*>(scratch);
  Elem best = table[blockIdx.x * cols];
#pragma unroll 4
  for (int c = threadIdx.x; c < cols; c += kWarps * 32) best = max(best, table[blockIdx.x * cols + c]);
  part[threadIdx.x] = best;
  __syncthreads();
  for (int half = kWarps * 16; half > 0; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] = max(part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) peaks[blockIdx.x] = part[0];
}
template <typename Elem>
void launch_row_peak(const Elem* table, Elem* peaks, int rows, int cols, cudaStream_t st) {
  row_peak<Elem, 4><<<rows, 128, 128 * sizeof(Elem), st>>>(table, peaks, cols);
}
template void launch_row_peak<float>(const float*, float*, int, int, cudaStream_t);
"""
    module = build(source, tmp_path)
    x = np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32)
    out = np.zeros(2100, np.float32)
    launch(module, "cube_kern", 128, x, out, 2100, grid=3)
    np.testing.assert_allclose(out, x.ravel() ** 3, rtol=1e-6)
    for ctype, dtype in (("float", np.float32), ("double", np.float64)):
        table, peaks = x.astype(dtype), np.zeros(7, dtype)
        shared = 128 * table.itemsize
        launch(module, "row_peak", 128, table, peaks, 300, grid=7, shared=shared, template=(ctype, "4"))
        np.testing.assert_array_equal(peaks, table.max(1))


@pytest.mark.parametrize(
    "declaration",
    [
        "extern __shared__ float s[];",
        "extern __shared__ __align__(16) float s[];",
        "__align__(16) extern __shared__ float s[];",
        "extern __shared__ alignas(sizeof(double) * 2) float s[];",
        "extern __shared__ char raw[]; float* s = (float*)raw;",
        "extern  __shared__\n  float s[ ];",
        "extern volatile __shared__ float s[];",
        "extern __shared__ volatile float s[];",
        "extern __shared__ __attribute__((aligned(8))) float s[];",
        "SHARED(float, s)",
    ],
)
def test_forms_of_dynamic_shared_memory(tmp_path: Path, declaration: str) -> None:
    module = build(
        "#define SHARED(type, name) extern __shared__ type name[];\n__global__ void k(float* x) {\n"
        + declaration
        + "\n  s[threadIdx.x] = x[threadIdx.x];\n  __syncthreads();\n"
        "  x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];\n}\n",
        tmp_path,
    )
    x = np.arange(64, dtype=np.float32)
    launch(module, "k", 64, x, shared=256)
    np.testing.assert_array_equal(x, np.arange(64)[::-1])


STATIC_SHARED = """
template <int N>
__global__ void fold(const float* x, float* y) {
  __shared__ float first[N];
  __shared__ float second[N];
  first[threadIdx.x] = x[threadIdx.x];
  second[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = first[N - 1 - threadIdx.x] + second[threadIdx.x];
}
"""


def test_static_shared_memory_beyond_48_kib_does_not_build(tmp_path: Path) -> None:
    source = split(STATIC_SHARED)
    build_cpu(source, tmp_path, [("fold", ("6144",))])  # 48 KiB exactly
    with pytest.raises(BuildError, match="too much shared data") as caught:
        build_cpu(source, tmp_path, [("fold", ("6145",))])
    assert "fold<6145>" in str(caught.value)


@pytest.mark.parametrize("child", ["cc1plus", "as", "ld"])
def test_a_child_of_the_compiler_that_is_killed_is_no_build_error(tmp_path: Path, child: str) -> None:
    (tmp_path / "one.cpp").write_text("int main() { return 0; }\n")
    dying = tmp_path / child
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o700)
    with pytest.raises(InfraError, match="killed from outside"):
        run_compiler(["g++", f"-B{tmp_path}/", "one.cpp", "-o", "one"], tmp_path, 30.0, "g++")
