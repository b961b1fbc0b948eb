"""``dice cuke stats`` reads data as training does: a broken line is named, not a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from dice_training.cuke.cli import main


def test_a_broken_line_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("not json\n")
    assert main(["stats", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}:1: not a CuKe row") and error.count("\n") == 1
