"""``dice cuke build``: rows from the teachers, checked and timed, one line each as they come."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from dice_training.cuke.generate import sample
from dice_training.cuke.verified import check_list, known_or_made, note_verified
from dice_training.cuke.verify import is_correct
from dice_training.judging import Options, open_pool
from dice_training.progress import Progress

_CHUNK, _TASK_CHUNK = 500, 20
"""Rows that a worker makes at a time; a task's takes some thirty times as long."""
_HOPELESS = 20
"""Rows that fail for the machine's fault before the first good one: then something is wrong with it."""


class _Stop:
    """Whether to stop: the time is up or Ctrl-C was pressed (a second one ends the process)."""

    def __init__(self, seconds: float | None) -> None:
        self.until = time.monotonic() + seconds if seconds is not None else None
        self.asked = False
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __call__(self) -> bool:
        return self.asked or (self.until is not None and time.monotonic() > self.until)


def _row(index: int, seed: int, kind: Any, split: str | None) -> dict[str, Any]:
    return sample(seed, index, kind, split)


def _task_row(index: int, seed: int, kind: Any, split: str | None, tasks: str) -> dict[str, Any]:
    from dice_training.cuke.traced.tasks import row_of_task

    return row_of_task(tasks, seed, index, kind, split)


def _chunk(indices: range, make: Any) -> list[dict[str, Any]]:
    return [make(index) for index in indices]


def _written(
    make: Any, indices: range, args: argparse.Namespace, stop: _Stop
) -> Generator[dict[str, Any], None, None]:
    """Rows in the order of their index, whatever the number of workers."""
    size = _TASK_CHUNK if args.tasks else _CHUNK
    chunks = [indices[i : i + size] for i in range(0, len(indices), size)]
    with contextlib.ExitStack() as stack:
        spread = stack.enter_context(ProcessPoolExecutor(args.workers)).map if args.workers > 1 else map
        for rows in spread(_chunk, chunks, [make] * len(chunks)):
            yield from rows
            if stop():
                return


def _checked(
    make: Any, indices: range, args: argparse.Namespace, stop: _Stop
) -> Generator[dict[str, Any], None, None]:
    """The same with their verdicts."""
    from dice_training.evaluate.cli import resolve_device

    options = Options(resolve_device(args.verify), budget=0.0, trusted=True)
    with open_pool(args.pool, options, args.workers) as pool:
        yield from pool.rows(make, indices, stop, measure=args.measure)


def _resumed(path: Path, args: argparse.Namespace) -> int:
    """The index after the last row of ``path``. Raises ValueError where it is not of this seed and range."""
    with path.open(encoding="utf-8") as file:
        last = deque(file, maxlen=1)
    if not last:
        return args.start
    seed, index = (int(part) for part in json.loads(last[0])["id"].split("-"))
    if seed != args.seed or not args.start <= index < args.start + args.count:
        raise ValueError(f"its last row is {seed}-{index}")
    return index + 1


def build(args: argparse.Namespace) -> int:
    from dice_training.cuke.duplicates import Duplicates
    from dice_training.cuke.forward_form import Contamination
    from dice_training.data import DataError, read_rows

    out = Path(args.out)
    if not out.parent.is_dir():
        print(f"error: {out.parent} is not a folder; create it or choose another --out", file=sys.stderr)
        return 2
    if args.count < 1 or args.workers < 1:
        print("error: --count and --workers must be at least 1", file=sys.stderr)
        return 2
    if args.measure and args.verify != "cuda":
        print("error: --measure times rows on a GPU: give --verify cuda too", file=sys.stderr)
        return 2
    if args.measure and args.verified:
        print("error: --measure times every row: leave out --verified", file=sys.stderr)
        return 2
    part = out.with_name(out.name + ".part")
    start = args.start
    if args.resume and (out.exists() or part.exists()):
        if out.exists():
            out.replace(part)
        try:
            start = _resumed(part, args)
        except (ValueError, KeyError) as error:
            print(f"error: {part} cannot be resumed with these options: {error}", file=sys.stderr)
            return 2
    indices = range(start, args.start + args.count)
    stop = _Stop(args.max_seconds)
    split = None if args.split == "both" else args.split
    make = partial(_row, seed=args.seed, kind=args.kind, split=split)
    if args.tasks:
        make = partial(_task_row, seed=args.seed, kind=args.kind, split=split, tasks=args.tasks)
    if args.verified:
        make = partial(known_or_made, make=make, path=str(args.verified))
    rows = (_checked if args.verify else _written)(make, indices, args, stop)
    duplicates = Duplicates(near=1.0)
    try:
        if args.verified:
            check_list(args.verified)
        contamination = Contamination(args.against)
        for row in read_rows(part) if start != args.start else ():
            duplicates.add(row)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    mode = "a" if start != args.start else "w"
    with (
        contextlib.closing(rows),
        part.open(mode, encoding="utf-8") as file,
        Progress("rows", len(indices)) as progress,
    ):
        tally = _Tally(progress)
        for row in rows:
            dropped = None
            if "verdict" in row and not is_correct(row):  # or it could not be written at all
                dropped = row["verdict"]["verdict"]
            elif args.verified and "verdict" not in row:
                dropped = "not verified"
            elif row in contamination:
                dropped = "an evaluation task"
            elif not duplicates.add(row):
                dropped = "a duplicate"
            if args.verified and "verdict" in row:
                note_verified(row, args.verified)
            if dropped is None:
                row |= {"provenance": {"source": "teacher", "seed": args.seed}, "licence": "Apache-2.0"}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            tally.count(row, dropped)
            if tally.hopeless:
                print("error: no row can be verified on this machine; see the reasons above", file=sys.stderr)
                return 1
    whole = progress.done == len(indices)
    part.replace(out)
    print(f"{tally.summary()} -> {out}")
    if not whole:
        print(f"stopped before index {start + progress.done}; go on with the same options and --resume")
    return 0


class _Tally:
    """What a build has kept and dropped so far."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.kept = progress, 0
        self.dropped: Counter[str] = Counter()
        self.began = time.monotonic()

    @property
    def hopeless(self) -> bool:
        return self.kept == 0 and self.dropped["infra_error"] >= _HOPELESS

    def count(self, row: dict[str, Any], dropped: str | None) -> None:
        self.kept += dropped is None
        if dropped is not None:
            self.dropped[dropped] += 1
            reason = row["verdict"]["reason"][:300] if row.get("verdict") else ""
            self.progress.note(f"{row['id']} {row['kind']} {row['family']}: {dropped} {reason}")
        self.progress.advance(f"{self.kept / (self.progress.done + 1):.1%} kept")

    def summary(self) -> str:
        seconds = time.monotonic() - self.began
        losses = f"; dropped {dict(self.dropped)}" if self.dropped else ""
        return f"{self.kept} samples in {seconds:.1f} s ({self.progress.done / max(seconds, 1e-9):.0f}/s){losses}"
