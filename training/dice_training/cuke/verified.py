"""Rows that were found correct once: the same rows, made again from their seed, need no second verdict."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dice_training.cuke.verify import Row, is_correct

_CHECKED = (
    *("kind", "reference", "prefix", "core", "suffix", "kernel"),
    *("original", "pytorch", "around", "class_name"),
)
"""All that a verdict on a row depends on."""
_BYTES = 6
BEFORE = "found correct in an earlier build"


def digest(row: Row) -> str:
    """Eight letters that stand for the row's text: a row that another version of the teacher writes has others."""
    text = json.dumps([row.get(field) for field in _CHECKED])
    short = hashlib.blake2b(text.encode(), digest_size=_BYTES).digest()
    return base64.urlsafe_b64encode(short).decode()


def note_verified(row: Row, path: Path) -> None:
    """Add a correct row to the list at ``path``, one digest a line."""
    if is_correct(row) and row["verdict"].get("reason") != BEFORE:
        with path.open("a", encoding="ascii") as file:
            file.write(digest(row) + "\n")


def known_or_made(index: int, make: Callable[[int], Row], path: str) -> Row:
    """The row of ``index``, with a verdict where the list at ``path`` has it."""
    row = make(index)
    if "verdict" not in row and digest(row) in _listed(path):
        row["verdict"] = {"verdict": "correct_unmeasured", "reason": BEFORE}
    return row


def check_list(path: Path) -> None:
    """Raises DataError where ``path`` is there and is no such list."""
    _listed(str(path))


@functools.cache
def _listed(path: str) -> frozenset[str]:
    """As it was when this process first asked: what a build adds is not made twice."""
    from dice_training.data import DataError  # brings the tokenizer, which building does without

    if not Path(path).exists():
        return frozenset()
    try:
        lines = Path(path).read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a list of verified rows: {error}") from error
    wrong: Any = next((line for line in lines if len(line) != len(digest({}))), None)
    if wrong is not None:
        raise DataError(f"{path}: not a list of verified rows: {wrong[:40]!r}")
    return frozenset(lines)
