"""``dice record``: a program is run as it is, and its shapes become plans and its hot lines are shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Workplace
from dice_engine.source.holes import find_holes
from dice_engine.source.project import load
from test_cli import dice

LAYERS = """import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width, scale=2.0):
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(width, width)

    def forward(self, x, flag):
        y = torch.sigmoid(self.linear(x)) * self.scale
        return y


def squared(x, times=2):
    for _ in range(times):
        x = x * x.abs()
    return x
"""
TRAIN = """import sys
import torch
from layers import Gate, squared

gate = Gate(16)
for _ in range(7):
    gate(torch.randn(64, 16), True)
gate(torch.randn(16, 64).t(), True)
for _ in range(5):
    squared(torch.randn(3, 4))
print("trained", sys.argv[1:])
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "layers.py").write_text(LAYERS, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    return tmp_path


def record(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dice_ls.cli", "record", "--", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_program_is_recorded_and_runs_as_it_is(program: Path) -> None:
    result = record(program, sys.executable, "train.py", "--fast")
    assert result.returncode == 3, "the program's own exit code"
    assert result.stdout == "trained ['--fast']\n"
    assert "2 modules, 1 functions" in result.stderr and "Error" not in result.stderr
    found = json.loads((program / ".dice" / "recorded.json").read_text(encoding="utf-8"))
    often = max(found["modules"], key=lambda entry: entry["calls"])
    assert (often["class"], often["calls"], often["line"]) == ("Gate", 7, 5)
    assert often["init"] == [{"value": 16}]
    assert often["inputs"] == [{"dtype": "float32", "shape": [64, 16], "stride": [16, 1]}, {"value": True}]
    ops = {entry["op"]: entry for entry in found["ops"]}
    assert ops["torch.sigmoid"]["line"] == 12 and ops["torch.sigmoid"]["calls"] == 8
    assert sum(entry["share"] for entry in found["ops"]) == pytest.approx(1, abs=0.01)

    (entry,) = found["functions"]
    assert (entry["function"], entry["calls"], entry["line"]) == ("squared", 5, 16)
    assert entry["inputs"] == [{"dtype": "float32", "shape": [3, 4], "stride": [4, 1]}, {"value": 2}]

    hole, plain = find_holes(LAYERS, str(program / "layers.py"), load(program))
    assert (plain.name, plain.plan.source) == ("squared", "recorded")
    assert hole.plan.source == "recorded" and "calls with" in hole.plan.origin["inputs"]
    namespace: dict[str, Any] = {}
    exec(LAYERS + (hole.plan.inputs_source or ""), namespace)
    gate = namespace["Gate"](*namespace["get_init_inputs"]())
    x, flag = namespace["get_inputs"]()
    assert gate(x, flag).shape == (64, 16) and flag is True
    listed = dice("holes", str(program / "layers.py"), "--json")
    assert json.loads(listed.stdout)[0]["plan"]["source"] == "recorded"


def test_attributes_are_no_operations(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(
        "import torch\nx = torch.ones(3, requires_grad=True)\ny = x * 2\nprint(x.grad, y.grad_fn, y.shape)\n"
    )
    record(tmp_path, sys.executable, "read.py")
    found = json.loads((tmp_path / ".dice" / "recorded.json").read_text(encoding="utf-8"))
    assert [entry["op"] for entry in found["ops"]] == ["torch.Tensor.mul"], found["ops"]


def test_other_axis_orders_are_made_again(tmp_path: Path) -> None:
    write(tmp_path, inputs=[{"dtype": "float16", "shape": [64, 16], "stride": [1, 64]}])
    (hole,) = find_holes(LAYERS, str(tmp_path / "layers.py"), load(tmp_path))
    namespace: dict[str, Any] = {}
    exec("import torch\n" + (hole.plan.inputs_source or ""), namespace)
    (x,) = namespace["get_inputs"]()
    assert (list(x.shape), x.stride(), str(x.dtype)) == ([64, 16], (1, 64), "torch.float16")


def test_nothing_of_a_recording_is_run_that_is_no_number_or_known_name(tmp_path: Path) -> None:
    evil = "__import__('os').system('true')"
    for wrong in (
        {"dtype": evil, "shape": [1], "stride": [1]},
        {"dtype": "float32", "shape": [evil], "stride": [1]},
        {"dtype": "float32", "shape": [1 << 40], "stride": [1]},
        {"value": {"a": evil}},
    ):
        write(tmp_path, inputs=[wrong])
        assert find_holes(LAYERS, str(tmp_path / "layers.py"), load(tmp_path)) == []
    write(tmp_path, inputs=[{"value": evil}])
    (hole,) = find_holes(LAYERS, str(tmp_path / "layers.py"), load(tmp_path))
    assert repr(evil) in (hole.plan.inputs_source or ""), "a text stays a text"
    (tmp_path / ".dice" / "recorded.json").write_text("[]")
    assert "another version" in load(tmp_path).problems[0]


def write(root: Path, inputs: list[Any], **more: Any) -> None:
    entry = {
        "class": "Gate",
        "file": str(root / "layers.py"),
        "line": 5,
        "inputs": inputs,
        "init": [{"value": 16}],
    }
    entry |= {"calls": 7, "share": 0.9, "seconds": 1.0}
    op = {"op": "torch.sigmoid", "file": str(root / "layers.py"), "line": 12, "inputs": inputs, "share": 0.34}
    op |= {"calls": 128, "seconds": 1.0, "text": "y = torch.sigmoid(self.linear(x)) * self.scale"}
    recorded = {"version": 1, "device": "NVIDIA H200", "modules": [entry], "ops": [op], **more}
    (root / ".dice").mkdir(exist_ok=True)
    (root / ".dice" / "recorded.json").write_text(json.dumps(recorded), encoding="utf-8")


def test_a_program_without_torch_or_that_is_missing(tmp_path: Path) -> None:
    assert "called no torch function" in record(tmp_path, sys.executable, "-c", "pass").stderr
    missing = record(tmp_path, "no-such-program")
    assert missing.returncode == 2 and missing.stderr.startswith("dice record: cannot run no-such-program")
    assert dice("record").returncode == 2


@pytest.mark.asyncio
async def test_hot_lines_are_annotated_and_followed(workplace: Workplace) -> None:
    client = await workplace.client()
    root = workplace.workspace
    uri = client.open(root / "layers.py", LAYERS, "python")
    assert await client.lenses(uri) == []
    await client.wait(
        lambda: any(name == "textDocument/publishDiagnostics" for name, _ in client.notifications)
    )
    write(root, inputs=[{"dtype": "float16", "shape": [64, 1024, 1024], "stride": [1 << 20, 1024, 1]}])
    await client.wait(lambda: any(method == "workspace/codeLens/refresh" for method, _ in client.requests))
    assert await client.lenses(uri) == [
        "34 % of GPU time, 128 calls, f16[64,1024,1024]",
        "DICE: find faster",
    ]
    origin = {"line": 0, "character": 0}
    client.change(uri, [{"range": {"start": origin, "end": origin}, "newText": "# new\n"}])
    lenses = await client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    assert lenses[0]["range"]["start"] == {"line": 12, "character": 0}, "it moves with its line"
