"""Replayed host code does what interpreted host code does, with other tensors and without looking again."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from dice_engine.verify.extension import Toolchain
from dice_engine.verify.replay import Replays

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

SOURCE = """
#include <torch/extension.h>
__global__ void scale(const float* x, float* y, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i] * s;
}
torch::Tensor scaled(torch::Tensor x, double s) {
  auto c = x.contiguous();
  auto y = torch::zeros_like(c);
  int n = c.numel();
  scale<<<(n + 63) / 64, 64>>>(c.data_ptr<float>(), y.data_ptr<float>(), (float)s, n);
  int h = n / 2;
  if (n > 100) scale<<<(h + 63) / 64, 64>>>(c.data_ptr<float>() + h, y.data_ptr<float>() + h, 1.0f, n - h);
  return y.view({n}).slice(0, 1);
}
std::vector<torch::Tensor> two(torch::Tensor x) {
  auto y = torch::zeros_like(x);
  scale<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), 3.0f, 8);
  return {x, y};
}
torch::Tensor reads(torch::Tensor x) {
  if (x[0].item<float>() > 0.0f) return x;
  return torch::zeros_like(x);
}
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tools = Toolchain(torch.device("cpu"), tmp_path_factory.mktemp("build"))
    return tools.load_inline("ext", "", SOURCE, ["scaled", "two", "reads"])


def calls(extension: Any) -> tuple[Replays, list[str]]:
    interpreted: list[str] = []

    def interpret(name: str, args: list[Any], runtime: Any) -> Any:
        interpreted.append(name)
        return extension._program.call(name, args, runtime)

    return Replays(interpret, extension._runtime), interpreted


def test_replays_with_other_tensors(extension: Any) -> None:
    replays, interpreted = calls(extension)
    for seed in range(4):
        x = torch.randn(257, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(replays("scaled", [x, 2.0]), extension.scaled(x, 2.0))
    assert interpreted == ["scaled"]


def test_other_shapes_strides_and_numbers_are_noted_anew(extension: Any) -> None:
    replays, interpreted = calls(extension)
    x = torch.randn(20, 30)
    for args in ([x, 2.0], [x.t(), 2.0], [x, 3.0], [x[:3], 2.0]):
        for _ in range(2):
            assert torch.equal(replays("scaled", list(args)), extension.scaled(*args))
    assert len(interpreted) == 4


def test_arguments_may_be_results(extension: Any) -> None:
    replays, _ = calls(extension)
    for _ in range(2):
        x = torch.randn(8)
        same, other = replays("two", [x])
        assert same is x
        assert torch.equal(other, 3 * x)


def test_code_that_reads_tensors_is_never_replayed(extension: Any) -> None:
    replays, interpreted = calls(extension)
    for value in (1.0, -1.0, 1.0):
        x = torch.full((4,), value)
        assert torch.equal(replays("reads", [x]), torch.relu(x))
    assert len(interpreted) == 3


def test_launches_are_counted(extension: Any) -> None:
    replays, _ = calls(extension)
    tools = extension._toolchain
    for _ in range(3):
        tools.begin("run")
        replays("scaled", [torch.randn(257), 2.0])
        assert tools.end() == 2
