"""``dice cuke import`` by the command line, on the CPU: what it keeps, that it goes on, what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from dice_training.cuke.cli import main

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks


def own_kernels(folder: Path) -> Path:
    """Two .py files (one wrong), a .cu with what it replaced and one alone, a note."""
    folder.mkdir()
    for name, right in (("relu", True), ("wrong", False)):
        row = small_tasks.module_row("relu", right)
        (folder / f"{name}.py").write_text(row["prefix"] + row["core"] + row["suffix"])
    for name in ("scale", "shift"):
        row = small_tasks.kernel_row(name)
        (folder / f"{name}.cu").write_text(row["prefix"] + row["core"] + row["suffix"])
    row = small_tasks.kernel_row("scale")
    (folder / "scale.slow.cu").write_text(row["prefix"] + row["reference"] + row["suffix"])
    (folder / "notes.py").write_text("x = 1\n")
    return folder


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_what_verifies_is_kept_and_a_stopped_import_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = own_kernels(tmp_path / "kernels"), tmp_path / "ours.jsonl"
    command = ["import", str(folder), "--out", str(out), "--device", "cpu", "--min-speedup", "0", "--json"]
    command += ["--licence", "ours", "--workers", "1"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"kept": 4, "mismatch": 2}
    assert "notes.py: no load_inline call" in said.err and "6/6 rows" in said.err
    rows = {row["id"]: row for row in lines(out)}
    assert set(rows) == {"relu.py#0", "relu.py#1", "scale.cu#0", "shift.cu#0"}
    for row in rows.values():
        assert row["prefix"] + row["core"] + row["suffix"] == row["program"]
        assert row["verdict"]["verdict"] == "correct_unmeasured" and row["device"] == "cpu"
        assert {"plan", "measurements", "provenance", "licence", "split", "ops", "family"} <= set(row)

    # As a run that was killed leaves it: a row that was written but not noted, and one that was cut off.
    seen = out.with_name(out.name + ".seen")
    noted = seen.read_text().splitlines(keepends=True)
    seen.write_text("".join(line for line in noted if "shift.cu" not in line) + '{"id": "sh')
    assert main([*command, "--resume"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"kept": 4, "mismatch": 2} and "1/1 rows" in said.err
    assert {row["id"]: row for row in lines(out)}.keys() == rows.keys() and len(lines(out)) == 4


def test_evaluation_tasks_and_duplicates_are_not_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "kernels", tmp_path / "ours.jsonl"
    folder.mkdir()
    row = small_tasks.module_row("relu")
    for name in ("a", "b"):
        (folder / f"{name}.py").write_text(row["prefix"] + row["core"] + row["suffix"])
    tasks = small_tasks.write(tmp_path / "tasks.jsonl", small_tasks.tasks())
    command = ["import", str(folder), "--out", str(out), "--device", "cpu", "--min-speedup", "0"]
    assert main([*command, "--against", str(tasks)]) == 1
    assert "0 rows" in (said := capsys.readouterr().out) and "4 an evaluation task" in said


def test_a_build_leaves_out_evaluation_tasks_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    command = ["build", "--count", "12", "--seed", "4", "--kind", "module"]
    assert main([*command, "--out", str(first)]) == 0
    rows = lines(first)
    assert all(row["licence"] and row["provenance"]["source"] == "teacher" for row in rows)
    tasks = [{"id": row["id"], "pytorch_code": row["reference"]} for row in rows[:5]]
    file = small_tasks.write(tmp_path / "tasks.jsonl", tasks)
    assert main([*command, "--out", str(second), "--against", str(file)]) == 0
    left = {row["id"] for row in lines(second)}
    assert not left & {task["id"] for task in tasks} and left <= {row["id"] for row in rows[5:]}


def test_rows_of_a_build_can_be_filtered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = small_tasks.kernel_row("scale")
    file = small_tasks.write(tmp_path / "built.jsonl", [row, row])
    command = [
        "import",
        str(file),
        "--out",
        str(tmp_path / "o.jsonl"),
        "--device",
        "cpu",
        "--min-speedup",
        "0",
    ]
    assert main(command) == 0
    (kept,) = lines(tmp_path / "o.jsonl")
    assert {key: kept[key] for key in row} == row and kept["verdict"]["verdict"] == "correct_unmeasured"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "none: not a folder, .py, .cu or .jsonl file"),
        (["{folder}", "--min-speedup", "2"], "nothing is timed on a CPU"),
        (["{folder}", "--against", "none"], "none: neither a folder of tasks nor a JSONL file"),
    ],
)
def test_bad_use_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = own_kernels(tmp_path / "kernels")
    given = [argument.format(folder=folder) for argument in arguments]
    speed = [] if "--min-speedup" in given else ["--min-speedup", "0"]
    assert main(["import", *given, *speed, "--out", str(tmp_path / "o.jsonl"), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
