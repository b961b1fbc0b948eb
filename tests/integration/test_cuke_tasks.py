"""Answers to tasks of a few families pass the project's own verifier on the CPU."""

from __future__ import annotations

import pytest
from dice_engine.verify.session import VerifySession
from dice_training.cuke.traced.samples import Task, task_sample
from dice_training.cuke.verify import verify_row

_HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
TASKS = {
    "softmax of linear": ("self.f = nn.Linear(20, 7)", "x", "F.softmax(self.f(x), dim=1)", "torch.randn(9, 20)"),
    "group norm": ("self.n = nn.GroupNorm(2, 6)", "x", "self.n(torch.sin(x))", "torch.randn(3, 6, 5, 5)"),
    "cat and pad": ("pass", "x, y", "F.pad(torch.cat([x, y], 1), (1, 2))", "torch.randn(4, 5), torch.randn(4, 3)"),
    "convolution": ("self.c = nn.Conv2d(3, 4, 3, 2, 1)", "x", "F.relu(self.c(x))", "torch.randn(2, 3, 9, 9)"),
    "convolution that stays": (
        "self.c = nn.Conv2d(32, 64, 3, padding=1)", "x", "F.relu(self.c(x)) + 1", "torch.randn(4, 32, 12, 12)"),
    "few long rows": ("pass", "x, y", "F.mse_loss(x, y)", "torch.randn(512, 512), torch.randn(512, 512)"),
    "order": ("pass", "x", "torch.topk(x, 3, dim=1)", "torch.randn(5, 40)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def session():
    with VerifySession(
        "cpu", isolation="warm", trusted_reference=True, trusted_candidate=True, threads=1, budget=0.0
    ) as opened:
        yield opened


@pytest.mark.parametrize("name", TASKS)
def test_answers_verify(session, name):
    init, arguments, body, inputs = TASKS[name]
    text = _HEAD.format(init=init, arguments=arguments, body=body, inputs=inputs)
    kind = "module" if len(name) % 2 else "load_inline_core"
    row = task_sample(Task(name, text), 4, 1, kind)
    verdict = verify_row(session, row)
    assert verdict.verdict == "correct_unmeasured", (verdict, row["program"])


BODIES = {
    "softmax in a file": ("torch.randn(6, 300)", "F.softmax(torch.sin(x) + 1, dim=1)"),
    "pooling in a module": ("torch.randn(2, 3, 12, 12)", "F.max_pool2d(x, 3, 2, 1)"),
}


@pytest.mark.parametrize("name", BODIES)
def test_kernel_bodies_verify(session, name):
    inputs, body = BODIES[name]
    text = _HEAD.format(init="pass", arguments="x", body=body, inputs=inputs)
    rows = (task_sample(Task(name, text), seed, 0, "kernel_body") for seed in range(20))
    row = next(row for row in rows if ("around" in row) == ("module" in name))
    verdict = verify_row(session, row)
    assert verdict.verdict == "correct_unmeasured", (verdict, row["reference"], row["core"])
