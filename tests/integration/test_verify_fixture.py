"""Arguments that a function of the user's makes: kernels, functions of tensors and modules (CPU backend)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.source.fixture import with_fixture
from dice_engine.source.holes import find_holes
from dice_engine.source.plans import kernel_plan
from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import Verdict
from dice_engine.verify_worker import judge

from dice_ls.suggestions.requests import NotCheckable, Request

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

FIXTURE = """import torch
from helper import WIDTH


def segments():
    lengths = torch.randint(1, 6, (40,))
    offsets = torch.cat([torch.zeros(1), lengths.cumsum(0)]).to(torch.int32)
    return {"x": torch.randn(int(offsets[-1])), "offsets": offsets, "out": torch.zeros(40), "n": 40}


def rows():
    return [torch.randn(50, WIDTH), torch.randint(0, 50, (17,))]


def pair():
    return {"y": torch.randn(8, WIDTH), "x": torch.randn(8, WIDTH)}


def doubles():
    return {**segments(), "x": torch.randn(99, dtype=torch.float64)}


def broken():
    return {"x": 1}
"""
KERNELS = """#include <torch/extension.h>
// @dice fixture=tests/made.py:segments grid=(n+63)/64 block=64
__global__ void sums(const float* x, const int* offsets, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = offsets[i]; k < offsets[i + 1]; ++k) sum += x[k];
  out[i] = sum;
}

// @dice fixture=tests/made.py:segments
__global__ void peaks(const float* x, const int* offsets, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float best = x[offsets[i]];
  for (int k = offsets[i]; k < offsets[i + 1]; ++k) best = fmaxf(best, x[k]);
  out[i] = best;
}

void run_peaks(const float* x, const int* offsets, float* out, int n, cudaStream_t stream) {
  peaks<<<(n + 31) / 32, 32, 0, stream>>>(x, offsets, out, n);
}

// @dice fixture=tests/made.py:rows
__global__ void taken(const float* table, const int64_t* rows, float* out, int width) {
  const int64_t row = rows[blockIdx.x];
  for (int j = threadIdx.x; j < width; j += blockDim.x) out[blockIdx.x * width + j] = table[row * width + j];
}

torch::Tensor take(torch::Tensor table, torch::Tensor rows) {
  auto out = torch::empty({rows.size(0), table.size(1)}, table.options());
  taken<<<rows.size(0), 64>>>(
      table.data_ptr<float>(), rows.data_ptr<int64_t>(), out.data_ptr<float>(), table.size(1));
  return out;
}
"""
MODULE = """import torch
from torch import nn


# @dice fixture=tests/made.py:pair init(3.0)
class Scaled(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x, y):
        return (x - y) * self.by
"""
REWRITTEN = '''


from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
__global__ void scaled(const float* x, const float* y, float* out, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (x[i] - y[i]) * by;
}
torch::Tensor run(torch::Tensor x, torch::Tensor y, double by) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  scaled<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), by, n);
  return out;
}
"""
extension = load_inline(name="scaled", cpp_sources="", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x, y):
        return extension.run(x, y, self.by)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "dice.toml").touch()
    (tmp_path / "tests" / "made.py").write_text(FIXTURE)
    (tmp_path / "tests" / "helper.py").write_text("WIDTH = 33\n")
    (tmp_path / "src" / "kernels.cu").write_text(KERNELS)
    (tmp_path / "src" / "scaled.py").write_text(MODULE)
    return tmp_path


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=60.0) as opened:
        yield opened


def judged(
    session: VerifySession, project: Path, kernel: str, old: str, new: str, text: str = KERNELS
) -> Verdict:
    at = text.index(f"void {kernel}(")
    candidate = text[:at] + text[at:].replace(old, new, 1)
    assert candidate != text
    plan = with_fixture(kernel_plan(text, kernel), str(project / "src" / "kernels.cu"))
    return session.verify_kernel(text, candidate, kernel, plan)


@pytest.mark.parametrize(
    ("kernel", "old", "good", "bad"),
    [
        ("sums", "sum += x[k]", "sum = sum + x[k]", "sum += x[i]"),
        ("peaks", "fmaxf(best, x[k])", "best > x[k] ? best : x[k]", "x[k]"),
        ("taken", "table[row * width + j]", "*(table + row * width + j)", "table[rows[0] * width + j]"),
    ],
)
def test_a_kernel_runs_on_what_the_fixture_gives(
    session: VerifySession, project: Path, kernel: str, old: str, good: str, bad: str
) -> None:
    assert judged(session, project, kernel, old, good).verdict == "correct_unmeasured"
    assert judged(session, project, kernel, old, bad).verdict == "mismatch"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("doubles", "gives x as torch.float64, the kernel reads torch.float32"),
        ("broken", "must give ['x', 'offsets', 'out', 'n']; missing: ['offsets', 'out', 'n']"),
        ("nowhere", "has no attribute 'nowhere'"),
    ],
)
def test_a_fixture_that_does_not_fit_is_no_plan(
    session: VerifySession, project: Path, function: str, said: str
) -> None:
    text = KERNELS.replace("made.py:segments grid", f"made.py:{function} grid")
    verdict = judged(session, project, "sums", "sum += x[k]", "sum = sum + x[k]", text)
    assert verdict.verdict == "no_plan" and said in verdict.reason


def test_a_module_with_a_fixture_is_judged_through_its_request(session: VerifySession, project: Path) -> None:
    path = str(project / "src" / "scaled.py")
    (hole,) = find_holes(MODULE, path)
    asked = Request(path, MODULE, hole)
    asked.check()
    assert "tests" not in asked.verify(REWRITTEN).candidate.split("ModelNew")[1], (
        "it runs with the reference alone"
    )
    assert judge(session, asked.verify(REWRITTEN)).verdict == "correct_unmeasured"
    assert judge(session, asked.verify(REWRITTEN.replace("x[i] - y[i]", "y[i] - x[i]"))).verdict == "mismatch"


def test_a_fixture_is_looked_for_inside_the_project_alone(project: Path) -> None:
    path = str(project / "src" / "scaled.py")
    (project.parent / "made.py").write_text(FIXTURE)
    for name, said in (
        ("made.py", "is not there"),
        ("../made.py", "is not there"),
        ("tests/no.py", "is not there"),
    ):
        (hole,) = find_holes(MODULE.replace("tests/made.py", name), path)
        with pytest.raises(NotCheckable, match=said):
            Request(path, MODULE, hole).check()


def test_from_the_command_line(project: Path) -> None:
    (project / "src" / "new.cu").write_text(KERNELS.replace("sum += x[k]", "sum = sum + x[k]"))
    command = [sys.executable, "-m", "dice_ls.cli", "verify", "src/kernels.cu", "src/new.cu"]
    done = subprocess.run(
        [*command, "--device", "cpu", "--json"], cwd=project, capture_output=True, text=True, timeout=120
    )
    assert json.loads(done.stdout)["verdict"] == "correct_unmeasured", done.stderr
