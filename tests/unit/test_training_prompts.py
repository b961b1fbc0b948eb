"""What a row trains on is what the evaluation, the command line and the editor ask: token by token."""

from __future__ import annotations

import json
from pathlib import Path

import dice_engine
import pytest
from dice_engine.generate import read_reference
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import CoreRequest, build_prompt
from dice_engine.source.holes import find_holes
from dice_training.cuke.traced.samples import Kind, Task, task_sample
from dice_training.data import build_dataset, request_of
from dice_training.tasks import read_tasks

from dice_ls.suggestions.requests import Request

CONTEXT, REPLY = 2048, 1024
TASKS = {
    "weights and sizes by name": '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Normalises."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)  # over the last one

    def forward(self, x):
        return torch.relu(self.norm(x))


batch_size = 16
dim = 64


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return [dim]
''',
    "nothing behind the class": """import torch


def get_inputs():
    # Two of them
    return [torch.randn(8, 32), torch.randn(8, 32)]

def get_init_inputs():
    return []

class Model(torch.nn.Module):
    def forward(self, x, y):
        s = torch.sigmoid(x)
        return torch.sum(s * y, dim=-1)""",
    "no line between": """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)
def get_inputs():
    return [torch.rand(8, 32)]
get_init_inputs = lambda: []
""",
}


@pytest.fixture(scope="module")
def tokenizer() -> DiceTokenizer:
    return DiceTokenizer.load(dice_engine.NANO)


def trained_on(row: dict[str, object]) -> list[int]:
    made = build_dataset([row], dice_engine.NANO, block_size=4, context=CONTEXT, row_length=4096)
    sample = made.samples[0]
    return sample.ids[: sample.prompt_length].tolist()


def asked(request: CoreRequest, tokenizer: DiceTokenizer) -> list[int]:
    """As the engine encodes it."""
    return build_prompt(request, tokenizer, CONTEXT - REPLY)


def edited(path: str, text: str, kind: str) -> CoreRequest:
    """What the editor sends for the first hole of ``kind``."""
    hole = next(hole for hole in find_holes(text, path) if hole.kind == kind)
    sent = Request(path, text, hole).generate()
    return CoreRequest(sent.kind, sent.prefix, sent.suffix, sent.reference)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_asked_for_as_it_is_trained_on(name: str, tmp_path: Path, tokenizer: DiceTokenizer) -> None:
    text = TASKS[name]
    row = task_sample(Task("1", text), 1, 0, "module")
    assert "verdict" not in row and row["prefix"] + row["suffix"] == text
    prompt = trained_on(row)
    lines, file = tmp_path / "tasks.jsonl", tmp_path / "task.py"
    lines.write_text(json.dumps({"id": 1, "pytorch_code": text}) + "\n")
    file.write_text(text)
    assert asked(request_of(read_tasks(lines)[0]), tokenizer) == prompt
    assert asked(read_reference(file), tokenizer) == prompt
    assert asked(edited("task.py", text, "module"), tokenizer) == prompt


@pytest.mark.parametrize("kind", ["kernel_body", "load_inline_core"])
def test_an_editor_asks_for_other_cores_as_they_are_trained_on(kind: Kind, tokenizer: DiceTokenizer) -> None:
    compared = 0
    for seed in range(10):
        row = task_sample(Task("1", TASKS["weights and sizes by name"]), seed, 0, kind)
        # A module in another file is nothing that the editor sees; a body in a string is another hole.
        if (
            "verdict" in row
            or "pytorch" in row
            or (kind != "kernel_body" and "class Model(" not in row["program"])
        ):
            continue
        standing = row["prefix"] + row["reference"] + row["suffix"]
        path, text = ("k.cu", standing) if kind == "kernel_body" else ("t.py", row["program"])
        assert asked(edited(path, text, kind), tokenizer) == trained_on(row), seed
        compared += 1
    assert compared > 1
