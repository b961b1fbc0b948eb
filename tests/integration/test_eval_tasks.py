"""``dice eval tasks`` and ``kernelbench`` by the command line: what they leave, that they go on, what they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from dice_training.evaluate.cli import main

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks

TASK = small_tasks.tasks()[0]["pytorch_code"]


def test_results_are_kept_and_a_second_run_goes_on_from_them(
    tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    file = small_tasks.write(tmp_path / "tasks.jsonl", [{"id": 1, "pytorch_code": TASK}])
    command = ["tasks", str(file), "--checkpoint", str(tiny_checkpoint), "--device", "cpu", "--workers", "1"]
    command += ["--out", str(out), "--json"]
    assert main(command) == 0
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert "1/1 tasks, " in said.err
    assert summary["tasks"] == 1 and summary["pass@1"] == 0.0 and summary["speed"] == {}
    assert sum(summary["verdicts"].values()) == 1
    assert json.loads((out / "summary.json").read_text()) == summary
    page = (out / "report.html").read_text()
    assert "data:image/png;base64" in page and "://" not in page
    assert (out / "plot.png").is_file()

    with (out / "results.jsonl").open("a") as lines:
        lines.write('{"id": "2", "cor')  # as a run that was killed leaves it
    assert main(command) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == summary and "tasks" not in said.err
    assert [json.loads(line)["id"] for line in (out / "results.jsonl").read_text().splitlines()] == ["1"]
    assert main([*command, "--seed", "5"]) == 2
    assert "results with another seed" in capsys.readouterr().err


def test_kernelbench_folders_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    from dice_training.data import DataError
    from dice_training.tasks import read_kernelbench

    level = tmp_path / "level2"
    level.mkdir()
    for name in ("10_B.py", "2_A.py"):
        (level / name).write_text(TASK)
    rows = read_kernelbench(tmp_path, 2)
    assert [row["id"] for row in rows] == ["2_A", "10_B"]
    assert all(row["prefix"] + row["core"] + row["suffix"] == TASK for row in rows)
    with pytest.raises(DataError, match="no folder level1 there"):
        read_kernelbench(tmp_path, 1)


@pytest.mark.parametrize("text", ['{"id": 1}', "not json", '{"id": 1, "pytorch_code": "x = 1"}'])
def test_a_line_that_is_no_task_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text + "\n")
    assert main(["tasks", str(path), "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dice eval: {path}:1: not a task") and error.count("\n") == 1
