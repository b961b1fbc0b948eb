"""``dice cuke merge``: each row once, timed where any file has its time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dice_training.cuke.cli import main


def row(name: str, speedup: float | None = None, ops: int = 1, verdict: str = "verified") -> dict[str, Any]:
    return {
        "id": name,
        "kind": "kernel_body",
        "split": "train",
        "family": "f",
        "reference": "",
        "program": name,
        "ops": ["relu"] * ops,
        "verdict": {"verdict": verdict if speedup is None else "verified"},
        "device": "cpu" if speedup is None else "GPU",
        "measurements": {"speedup": speedup},
    }


def file(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


def merged(tmp_path: Path, *files: str, least: str = "0") -> list[dict[str, Any]]:
    out = tmp_path / "out.jsonl"
    main(["merge", *files, "--out", str(out), "--min-speedup", least])
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_rows_of_a_cpu_get_the_times_of_a_gpu_whichever_comes_first(tmp_path):
    cpu = file(
        tmp_path / "cpu.jsonl", row("a", verdict="correct_unmeasured"), row("b", verdict="correct_unmeasured")
    )
    gpu = file(tmp_path / "gpu.jsonl", row("b", 3.0), row("c", 1.5))
    for files in ((cpu, gpu), (gpu, cpu)):
        found = {one["program"]: one for one in merged(tmp_path, *files)}
        assert {name: one["measurements"]["speedup"] for name, one in found.items()} == {
            "a": None,
            "b": 3.0,
            "c": 1.5,
        }
        assert found["b"]["device"] == "GPU" and found["b"]["verdict"]["verdict"] == "verified"


def test_what_was_timed_as_too_slow_is_left_out_and_what_was_not_timed_stays(tmp_path, capsys):
    rows = file(
        tmp_path / "a.jsonl", row("slow", 1.2), row("fast", 2.0), row("whole", 1.2, ops=6), row("untimed")
    )
    assert [one["program"] for one in merged(tmp_path, rows, least="2")] == ["fast", "whole", "untimed"]
    assert "3 rows, 2 of them timed" in capsys.readouterr().out


def test_a_row_that_any_file_has_as_wrong_is_left_out(tmp_path):
    first = file(tmp_path / "a.jsonl", row("a"), row("b"))
    second = file(tmp_path / "b.jsonl", row("a", verdict="mismatch"))
    assert [one["program"] for one in merged(tmp_path, first, second)] == ["b"]


def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys):
    assert main(["merge", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "out.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_times_are_taken_on_a_gpu_only(tmp_path, capsys):
    assert main(["build", "--out", str(tmp_path / "o.jsonl"), "--measure"]) == 2
    assert "--verify cuda" in capsys.readouterr().err
