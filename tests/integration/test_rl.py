"""Both phases of BiC-RL in small, by the command line: a model that guesses learns what is right.

From nothing: supervised training of a tiny model, rollouts by the engine, verdicts by the CPU backend.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dice_engine.engine import Engine
from dice_engine.verify.verdict import CORRECT
from dice_training.data import request_of
from dice_training.train_cli import main

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks

RECIPE = """
init = "{folder}/start"
output = "{folder}/rl"
tasks = 3
replies = 12
max_new_tokens = 300
learning_rate = 5e-4
kl = 0.01
row_length = 1024
batch_rows = 1
workers = 1
quantize = false

[[phase]]
kind = "infill"
data = "{folder}/rows.jsonl"
steps = 4

[[phase]]
kind = "generate"
data = "{folder}/tasks.jsonl"
steps = 3
"""


def share_right(folder: Path, rows: list[dict[str, Any]]) -> float:
    """How often a checkpoint writes the right core, over draws with seeds that no training step used."""
    engine = Engine.load(folder, "cpu")
    asked = engine.candidates_many([request_of(row) for row in rows], 25, 10**6, temperature=1.0)
    cores = [(row["core"], c.core) for row, found in zip(rows, asked, strict=True) for c in found[1:]]
    return sum(right == core for right, core in cores) / len(cores)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.timeout(600)
def test_both_phases_raise_the_share_of_right_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    start = small_tasks.undecided_checkpoint(tmp_path)
    rows = small_tasks.rows()
    small_tasks.write(tmp_path / "rows.jsonl", rows)
    small_tasks.write(tmp_path / "tasks.jsonl", small_tasks.tasks())
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=tmp_path))

    assert main(["rl", str(recipe), "--stop-after", "0"]) == 0  # one step, then its state is saved
    assert len(lines(tmp_path / "rl" / "metrics.jsonl")) == 1
    assert main(["rl", str(recipe), "--resume"]) == 0
    torch.set_num_threads(threads)
    assert capsys.readouterr().out.split() == [str(tmp_path / "rl")] * 2

    modules = rows[2:]
    middle, end = tmp_path / "rl" / "phase1-infill", tmp_path / "rl"
    assert share_right(middle, rows) > share_right(start, rows) + 0.1
    assert share_right(end, modules) > share_right(start, modules) + 0.1

    metrics = lines(end / "metrics.jsonl")
    assert [(m["step"], m["phase"]) for m in metrics] == [
        *((step, "infill") for step in range(4)),
        *((step, "generate") for step in range(4, 7)),
    ]
    assert metrics[3]["reward"] > metrics[0]["reward"]
    assert all(m["loss"] < 0.02 and m["kl"] >= 0 for m in metrics)
    for step, entry in enumerate(metrics):
        kept = lines(end / "rollouts" / f"{step:05d}.jsonl")
        assert sum(entry["verdicts"].values()) == len(kept) == 12 * entry["of"]
        for rollout in kept:
            assert rollout["reward"] == float(rollout["verdict"]["verdict"] in CORRECT)
            assert len(rollout["tokens"]) == len(rollout["step_map"])
    assert "data:image/png;base64" in (end / "report.html").read_text() and (end / "curves.png").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('kind = "infil"', "phase 1: 'kind' is 'infil'"),
        ("replies = 1", "'replies' must be at least 2"),
        ("learning = 1", "unknown key 'learning'; did you mean 'learning_rate'?"),
        ("speed = 0.1", "'speed' needs a GPU"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_one_line(
    change: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path
) -> None:
    if message.startswith("'speed'") and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    text = RECIPE.format(folder=tmp_path).replace(f"{tmp_path}/start", str(tiny_checkpoint))
    key = change.split(" = ")[0]
    kept = [line for line in text.splitlines() if not line.startswith(key + " =") or key == "kind"]
    text = (
        "\n".join(kept).replace('kind = "infill"', change)
        if key == "kind"
        else f"{change}\n" + "\n".join(kept)
    )
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    assert main(["rl", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_nothing_to_resume_is_said(
    tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_tasks.write(tmp_path / "rows.jsonl", small_tasks.rows()[:1])
    small_tasks.write(tmp_path / "tasks.jsonl", small_tasks.tasks()[:1])
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path).replace(f"{tmp_path}/start", str(tiny_checkpoint)))
    assert main(["rl", str(path), "--resume"]) == 2
    assert "nothing to resume there" in capsys.readouterr().err
