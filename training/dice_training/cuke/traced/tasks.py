"""Which task a row is about: those of a file in an order drawn from the seed, or invented ones."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dice_training.cuke.traced import INVENTED, UNWRITTEN
from dice_training.cuke.traced.invented import invented_task
from dice_training.cuke.traced.layouts import another_layout
from dice_training.cuke.traced.samples import Kind, Row, Task, task_sample
from dice_training.cuke.traced.trace import trace
from dice_training.cuke.traced.variants import variant
from dice_training.data import DataError

_SECONDS = 20
"""A task that takes longer to trace is left out."""
_FIRST = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(2)]
"""
_ATTEMPTS = 8
_VARIANTS = 3
_OTHER_LAYOUT = 0.3
"""How often a task is laid out in another way than its author's."""


@lru_cache(maxsize=2)
def tasks_of(path: str) -> tuple[Task, ...]:
    """The tasks of a JSONL file. Raises DataError that names the line."""
    found = []
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                task = json.loads(line)
                found.append(Task(str(task["id"]), task["pytorch_code"]))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: not a task with id and pytorch_code: {error}") from error
    return tuple(found)


@lru_cache(maxsize=4)
def _order(path: str, seed: int) -> list[int]:
    order = list(range(len(tasks_of(path))))
    random.Random(seed).shuffle(order)
    return order


def row_of_task(tasks: str, seed: int, index: int, kind: Kind | None, split: str | None) -> Row:
    """Row ``index``: each task once in each round, in a form drawn anew, and after the first round as a variant.
    ``split`` leaves out the other families."""
    if tasks == INVENTED:
        row = _invented(seed, index, kind)
    else:
        order = _order(tasks, seed)
        task = tasks_of(tasks)[order[index % len(order)]]
        row = _row(task, seed, index, kind) if index < len(order) else _varied(task, seed, index, kind)
    if split not in (None, row.get("split", split)):
        return _left_out(row["task"], seed, index, kind, "of the other split")
    return row


def _invented(seed: int, index: int, kind: Kind | None) -> Row:
    """The first of some tasks that can be written."""
    row: Row = {}
    for attempt in range(_ATTEMPTS):
        task = invented_task(seed, index, attempt)
        rng = random.Random(f"layout:{task.id}")
        if rng.random() < _OTHER_LAYOUT:
            task = Task(task.id, another_layout(task.text, rng))
        row = _row(task, seed, index, kind)
        if "verdict" not in row:
            break
    return row


def _varied(task: Task, seed: int, index: int, kind: Kind | None) -> Row:
    """The first of some variants of a task that can be written, or else the task."""
    rng = random.Random(f"variant:{seed}:{index}")
    for _ in range(_VARIANTS):
        try:
            other = variant(task.text, rng)
            if rng.random() < _OTHER_LAYOUT:
                other = another_layout(other, rng)
        except SyntaxError:
            break
        row = _row(Task(task.id, other), seed, index, kind)
        if "verdict" not in row:
            return row
    return _row(task, seed, index, kind)


def _row(task: Task, seed: int, index: int, kind: Kind | None) -> Row:
    try:
        with time_limit(_SECONDS):
            return task_sample(task, seed, index, kind)
    except TimeoutError:
        return _left_out(task.id, seed, index, kind, f"takes longer than {_SECONDS} s to trace")
    except Exception as error:  # a build of a million rows does not end for one of them
        reason = f"the teacher fails: {type(error).__name__}: {str(error)[:100]}"
        return _left_out(task.id, seed, index, kind, reason)


@cache
def _prepare() -> None:
    """Have the first trace import what it needs: a limit that strikes in an import would leave half a module behind, on
    which every later trace fails."""
    trace(_FIRST)


def _left_out(task: str, seed: int, index: int, kind: Any, reason: str) -> Row:
    return {
        "id": f"{seed}-{index}",
        "task": task,
        "kind": kind or "module",
        "family": "",
        "verdict": {"verdict": UNWRITTEN, "reason": reason},
    }


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """TimeoutError in the main thread after ``seconds`` of work on a task; elsewhere no limit."""
    _prepare()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
