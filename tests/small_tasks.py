"""A few tasks that a tiny model learns in seconds, each with a right and a wrong answer of the same length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_BODY = "\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = {};\n"
_KERNELS = {  # name: (the body that stands there, right, wrong)
    "scale": ("x[i] * 2.0f * 1.0f", "2.0f * x[i]", "3.0f * x[i]"),
    "shift": ("x[i] + 1.0f + 0.0f", "x[i] + 1.0f", "x[i] - 1.0f"),
}
_MODULES = {  # name: (PyTorch, right, wrong)
    "relu": ("torch.relu(x)", "fmaxf(x[i], 0.0f)", "fminf(x[i], 0.0f)"),
}
_MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {}
"""
_SUFFIX = "\n\ndef get_inputs():\n    return [torch.randn(8, 33)]\n"
_CORE = '''
from torch.utils.cpp_extension import load_inline

source = """
__global__ void k(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {};
}}
torch::Tensor f(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    k<<<9, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
"""
ext = load_inline("e", "torch::Tensor f(torch::Tensor x);", source, functions=["f"])


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.f(x)
'''


def kernel_row(name: str, right: bool = True) -> dict[str, Any]:
    existing, good, bad = _KERNELS[name]
    return {
        "id": name,
        "family": name,
        "split": "train",
        "kind": "kernel_body",
        "kernel": name,
        "reference": _BODY.format(existing),
        "prefix": f"__global__ void {name}(const float* x, float* y, int n) {{",
        "core": _BODY.format(good if right else bad),
        "suffix": f"}}\n\nvoid run(const float* x, float* y, int n) {{ {name}<<<(n + 255) / 256, 256>>>(x, y, n); }}\n",
        "ops": [name],
    }


def module_row(name: str, right: bool = True) -> dict[str, Any]:
    pytorch, good, bad = _MODULES[name]
    prefix = _MODULE.format(pytorch)
    return {
        "id": name,
        "family": name,
        "split": "train",
        "kind": "module",
        "reference": prefix + _SUFFIX,
        "prefix": prefix,
        "core": _CORE.format(good if right else bad),
        "suffix": _SUFFIX,
        "ops": [name],
    }


def rows(right: bool = True) -> list[dict[str, Any]]:
    return [kernel_row(name, right) for name in _KERNELS] + [module_row(name, right) for name in _MODULES]


def write(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def tasks() -> list[dict[str, Any]]:
    """The modules as PyTorch tasks."""
    return [{"id": name, "pytorch_code": module_row(name)["reference"]} for name in _MODULES]


def undecided_checkpoint(folder: Path, steps: int = 110) -> Path:
    """A tiny model trained on right and wrong answers alike: it knows the form, and guesses the rest."""
    from dice_training.recipe import ModelShape, SftRecipe
    from dice_training.sft import train

    data = write(folder / "both.jsonl", rows(True) + rows(False))
    recipe = SftRecipe(
        data=str(data),
        output=str(folder / "start"),
        shape=ModelShape(2, 64, 128, 4, 2, 16, vocab=900, context=768),
        noise="block",
        row_length=1024,
        batch_rows=1,
        steps=steps,
        optimizer="muon",
        learning_rate=2e-2,
        adam_rate=2e-2,
        ema=0.9,
        quantize=False,
    )
    return train(recipe, lambda line: None)
