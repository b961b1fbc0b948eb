"""PyTorch tasks to be made fast, as rows of kind ``module``: from JSONL (``pytorch_code``) or KernelBench's folders."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dice_engine.source.holes import decode, find_holes

from dice_training.cuke.verify import Row
from dice_training.data import DataError

_NUMBER = re.compile(r"(\d+)")


def read_tasks(path: Path) -> list[Row]:
    """The tasks of a JSONL file with ``{id, pytorch_code}`` a line. Raises DataError that names the line."""
    rows = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    task = json.loads(line)
                    rows.append(task_row(str(task["id"]), task["pytorch_code"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        f"{path}:{number}: not a task with id and pytorch_code: {error}"
                    ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return rows


def read_kernelbench(folder: Path, level: int) -> list[Row]:
    """The tasks of a level of KernelBench as published (``level1/1_Name.py``), in the order of their numbers."""
    places = [folder / f"level{level}", folder / "KernelBench" / f"level{level}"]
    place = next((place for place in places if place.is_dir()), None)
    if place is None:
        raise DataError(f"{folder}: no folder level{level} there; give KernelBench's folder of levels")
    files = sorted(place.glob("*.py"), key=lambda file: (_number(file.name), file.name))
    if not files:
        raise DataError(f"{place}: no tasks (*.py) there")
    rows = []
    for file in files:
        try:
            rows.append(task_row(file.stem, file.read_text(encoding="utf-8")))
        except (ValueError, OSError) as error:
            raise DataError(f"{file}: {error}") from error
    return rows


def task_row(name: str, text: str) -> Row:
    """A row whose core is still to be written: behind the class ``Model`` (or the last module class) of ``text``.

    Raises ValueError where there is no module class with ``get_inputs``.
    """
    holes = [hole for hole in find_holes(text, "task.py") if hole.kind == "module"]
    if not holes:
        raise ValueError("no PyTorch module class with get_inputs()")
    hole = next((hole for hole in holes if hole.name == "Model"), holes[-1])
    parts = decode(hole)
    return {
        "id": name,
        "kind": "module",
        "reference": text,
        "class_name": hole.name,
        "prefix": parts.prefix,
        "core": "",
        "suffix": parts.suffix,
    }


def _number(name: str) -> int:
    found = _NUMBER.match(name)
    return int(found[1]) if found else 0
