"""``dice cuke stats`` reads data as training does: a broken line is named, not a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dice_training.cuke.cli import main


def test_a_broken_line_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("not json\n")
    assert main(["stats", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}:1: not a CuKe row") and error.count("\n") == 1


def test_speedups_and_operators_are_summed_up_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": "a", "family": "f", "split": "train", "kind": "module", "ops": ["relu"]}
    row |= dict.fromkeys(("reference", "prefix", "core", "suffix"), "x")
    rows = [
        {**row, "verdict": {"verdict": "verified", "device": "H200", "speedup": speed}}
        for speed in (0.9, 2.0, 3.0, 9.0)
    ]
    path, plot = tmp_path / "rows.jsonl", tmp_path / "plot.png"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
    assert main(["stats", str(path), "--json", "--plot", str(plot)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["speedups"]["timed"] == 4 and found["speedups"][">=2"] == 0.75
    assert found["ops"] == {"relu": 4} and found["devices"] == {"H200": 4}
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert main(["stats", str(path)]) == 0
    assert ">=2x 75%" in capsys.readouterr().out
