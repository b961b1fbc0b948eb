"""The pool that scores and rewards are made of: robust and plain correctness, equal candidates, lost workers."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks
from dice_training.judging import Case, Options
from dice_training.pool.local import LocalPool
from faults import descendants

REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(torch.relu(x))
"""
SUFFIX = "\n\ndef get_inputs():\n    return [torch.randn(16, 33)]\n"
RIGHT = '''
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

__global__ void fused_kernel(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = expf(fmaxf(x[i], 0.0f));
}

torch::Tensor fused(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    fused_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""

ext = load_inline(
    name="fused", cpp_sources="torch::Tensor fused(torch::Tensor x);", cuda_sources=source, functions=["fused"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.fused(x)
'''
ROW = {
    "kind": "module",
    "prefix": REFERENCE,
    "core": RIGHT,
    "suffix": SUFFIX,
    "reference": REFERENCE + SUFFIX,
}
TORCH_ONLY = (
    "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.exp(torch.relu(x))\n"
)


def test_robust_and_plain_correctness_stand_side_by_side() -> None:
    broken = RIGHT.replace("__global__", "__globul__")
    wrong = RIGHT.replace("0.0f)", "0.5f)")
    with LocalPool(Options("cpu", budget=0.0), 1, plain=True) as pool:
        ((index, found),) = pool.judge([Case(ROW, [RIGHT, TORCH_ONLY, broken, wrong, RIGHT])])
    assert index == 0
    assert [j.verdict.verdict for j in found] == [
        "correct_unmeasured", "deceptive", "build_error", "mismatch", "correct_unmeasured",
    ]  # fmt: skip
    assert [j.plain for j in found] == [True, True, False, False, True]
    assert found[0] is found[4]


def test_rows_are_made_and_checked_by_the_workers_in_their_order() -> None:
    asked = []

    def stopped() -> bool:
        asked.append(True)
        return len(asked) > 2

    with LocalPool(Options("cpu", budget=0.0, trusted=True), 1) as pool:
        rows = list(pool.rows(_row, range(100), stopped))
    assert 0 < len(rows) < 100 and [row["id"] for row in rows] == [str(index) for index in range(len(rows))]
    assert [row["verdict"]["verdict"] for row in rows[:2]] == ["correct_unmeasured", "mismatch"]


def _row(index: int) -> dict[str, Any]:
    return {**small_tasks.kernel_row("scale", right=index % 2 == 0), "id": str(index)}


def test_what_goes_wrong_in_making_a_row_is_raised() -> None:
    with LocalPool(Options("cpu"), 1) as pool, pytest.raises(FileNotFoundError):
        next(pool.rows(_missing, range(3), lambda: False))


def _missing(index: int) -> dict[str, Any]:
    raise FileNotFoundError(index)


PROGRAM = """
import sys, time
from dice_training.judging import Case, Options
from dice_training.pool.local import LocalPool
import faults
row = {"kind": "kernel_body", "kernel": "axpb", "prefix": "", "suffix": "", "reference": ""}
row["original"] = faults.ORIGINAL
if __name__ == "__main__":
    with LocalPool(Options("cpu", timeout=120.0), 1) as pool:
        pool.submit(Case(row, [faults.RIGHT + "//"])).result()
        pool.submit(Case(row, [faults.ENDLESS]))
        print(flush=True)
        time.sleep(60)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_parent_that_is_ended(number: int, tmp_path: Path) -> None:
    """In the middle of a candidate that never ends, which nobody is left to stop."""
    program = tmp_path / "judge.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    parent.stdout.readline()
    time.sleep(0.5)
    below = descendants(parent.pid)
    assert len(below) >= 3  # the worker, its zygote, a runner
    parent.send_signal(number)
    parent.wait()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_a_worker_that_does_not_answer_is_our_fault_and_is_replaced() -> None:
    with LocalPool(Options("cpu", budget=0.0), 1, deadline=0.05) as pool:
        ((_, (judged,)),) = pool.judge([Case(ROW, [RIGHT])])
        assert judged.verdict.verdict == "infra_error"
        pool.deadline = 120.0
        ((_, (judged,)),) = pool.judge([Case(ROW, [RIGHT])])
        assert judged.correct
