"""Compiled host code on the CPU backend: bindings, launches, errors. Precompiling torch's headers takes 40 s once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import platformdirs
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from dice_engine.verify.build.cpu import build_cpu  # noqa: E402
from dice_engine.verify.build.device_source import split  # noqa: E402
from dice_engine.verify.build.host import HostExtension, build_host  # noqa: E402
from dice_engine.verify.build.interface import BuildError, LaunchError, NeedsToolkit  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

SOURCE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
template <typename T, int N>
__global__ void __launch_bounds__(128) scale(const T* __restrict__ x, T* y, T s, int64_t n, bool twice) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * s * T(N) * (twice ? T(2) : T(1));
}
std::tuple<torch::Tensor, int64_t> run(const torch::Tensor& x, double s, bool twice, c10::optional<torch::Tensor> out) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = out.has_value() ? *out : torch::empty_like(x);
  int64_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
    scale<scalar_t, 3><<<(n + 127) / 128, 128, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<scalar_t>(s), n, twice);
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return std::make_tuple(y, n);
}
std::vector<torch::Tensor> many(torch::Tensor x, std::vector<int64_t> sizes) {
  TORCH_CHECK(x.dim() == 1, "one dimension, got ", x.dim());
  return {x + 1, torch::zeros(sizes, x.options())};
}
void big(torch::Tensor x) { scale<float, 1><<<1, 4096>>>(x.data_ptr<float>(), x.data_ptr<float>(), 1.f, 1, false); }
void raw(float* x, int n, cudaStream_t st) { scale<float, 1><<<1, 64, 0, st>>>(x, x, 2.f, n, false); }
"""


def build(source: str, functions: list[str], folder: Path) -> HostExtension:
    (folder / "device").mkdir()
    module = build_cpu(split(source), folder / "device")
    headers = Path(platformdirs.user_cache_dir("dice")) / "headers"  # the verifier's own: made once
    return build_host(source, functions, module, folder, headers)


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> HostExtension:
    return build(SOURCE, ["run", "many", "big", "raw"], tmp_path_factory.mktemp("host"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dispatched_kernels_run(extension: HostExtension, dtype: Any) -> None:
    x = torch.randn(1000, dtype=dtype)
    before = extension.launch_count
    y, n = extension.run(x, 2.0, True, None)
    torch.testing.assert_close(y, x * 12)
    assert n == 1000 and extension.launch_count == before + 1


def test_arguments_of_all_kinds(extension: HostExtension) -> None:
    out = torch.empty(10)
    y, _ = extension.run(torch.ones(10), 1, False, out)
    assert y.data_ptr() == out.data_ptr() and out.tolist() == [3] * 10
    first, second = extension.many(torch.ones(2), [2, 3])
    assert first.tolist() == [2, 2] and second.shape == (2, 3)
    x = torch.ones(64)
    extension.raw(x.data_ptr(), 64, 0)
    assert x.sum() == 128


@pytest.mark.parametrize(
    "args", [(), (torch.ones(1), "s", True, None), (3, 1.0, True, None), (torch.ones(1), 1.0, 1, None)]
)
def test_wrong_arguments_are_type_errors(extension: HostExtension, args: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match=r"run\(\)"):
        extension.run(*args)


def test_torch_checks_raise(extension: HostExtension) -> None:
    with pytest.raises(RuntimeError, match="one dimension, got 2"):
        extension.many(torch.ones(2, 2), [])


def test_a_refused_launch_is_a_launch_error(extension: HostExtension) -> None:
    with pytest.raises(LaunchError, match="cudaErrorInvalidConfiguration"):
        extension.big(torch.ones(1))


def test_launches_can_be_made_to_fail_or_left_out(extension: HostExtension) -> None:
    out = torch.zeros(4)
    try:
        extension.mode = "fail"
        with pytest.raises(RuntimeError, match="refused"):
            extension.run(torch.ones(4), 1.0, False, out)
        extension.mode = "skip"
        extension.run(torch.ones(4), 1.0, False, out)
    finally:
        extension.mode = "run"
    assert out.tolist() == [0] * 4


def test_errors_are_on_the_users_lines(extension: HostExtension, tmp_path: Path) -> None:
    source = SOURCE.replace("x.numel();", "x.numle();")
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "numle" in text)
    with pytest.raises(BuildError, match=rf"kernel\.cu:{line}:\d+: error") as caught:
        build(source, ["run"], tmp_path)
    assert str(tmp_path) not in caught.value.log


def test_device_words_in_host_code_are_left_to_nvcc(extension: HostExtension, tmp_path: Path) -> None:
    with pytest.raises(NeedsToolkit):
        build(
            SOURCE.replace("int64_t n = x.numel();", "int64_t n = x.numel() + threadIdx.x;"),
            ["run"],
            tmp_path,
        )
