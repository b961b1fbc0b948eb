"""``dice cuke merge``: rows of several files as one. A row that a CPU found correct gets the times that a GPU took."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_training.cuke.collect import fast_enough
from dice_training.cuke.verify import is_correct
from dice_training.data import DataError, read_rows

Row = dict[str, Any]


@dataclass
class Counts:
    """``rows`` that were written, how many of them are ``timed``, and those left out as too ``slow``."""

    rows: int = 0
    timed: int = 0
    slow: int = 0


def merged(files: Sequence[Path], out: Path, least: float) -> Counts:
    """Write each row of ``files`` once to ``out``, in the order in which they come first.

    Of equal rows the one that was timed stands for all. What any file has as wrong is left out. ``least``: the speedup
    that a row must have, where one was measured; 0 for any. Raises DataError for files that cannot be read.
    """
    kept: dict[str, Row] = {}
    wrong: set[str] = set()
    for path in files:
        for row in read_rows(path):
            key = _key(row)
            if "verdict" in row and not is_correct(row):
                wrong.add(key)
            elif key not in kept or (_speedup(row) is not None and _speedup(kept[key]) is None):
                kept[key] = kept.get(key, {}) | row
    counts = Counts()
    try:
        with out.open("w", encoding="utf-8") as lines:
            for key, row in kept.items():
                if key in wrong:
                    continue
                speedup = _speedup(row)
                if least and speedup is not None and not fast_enough(row, speedup, least):
                    counts.slow += 1
                    continue
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                counts.rows += 1
                counts.timed += speedup is not None
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error.strerror}") from error
    return counts


def _key(row: Row) -> str:
    text = "\0".join([row["kind"], row["reference"], row["program"], *row.get("around", ())])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _speedup(row: Row) -> float | None:
    return (row.get("measurements") or {}).get("speedup")
