"""The pool that scores and rewards are made of: robust and plain correctness, equal candidates, lost workers."""

from __future__ import annotations

from dice_training.judging import Case, JudgePool

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
    with JudgePool("cpu", 1, budget=0.0, plain=True) as pool:
        ((index, found),) = pool.judge([Case(ROW, [RIGHT, TORCH_ONLY, broken, wrong, RIGHT])])
    assert index == 0
    assert [j.verdict.verdict for j in found] == [
        "correct_unmeasured", "deceptive", "build_error", "mismatch", "correct_unmeasured",
    ]  # fmt: skip
    assert [j.plain for j in found] == [True, True, False, False, True]
    assert found[0] is found[4]


def test_a_worker_that_does_not_answer_is_our_fault_and_is_replaced() -> None:
    with JudgePool("cpu", 1, budget=0.0, deadline=0.05) as pool:
        ((_, (judged,)),) = pool.judge([Case(ROW, [RIGHT])])
        assert judged.verdict.verdict == "infra_error"
        pool.deadline = 120.0
        ((_, (judged,)),) = pool.judge([Case(ROW, [RIGHT])])
        assert judged.correct
