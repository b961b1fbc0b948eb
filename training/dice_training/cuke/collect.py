"""``dice cuke import``: rows of people's own programs, verified, timed and filtered; what was looked at is kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.verify.verdict import CORRECT, Verdict

from dice_training.cuke.duplicates import Duplicates
from dice_training.cuke.forward_form import Contamination
from dice_training.cuke.importing import Unusable, rows_of, sources
from dice_training.cuke.verify import Row, measurements
from dice_training.data import DataError
from dice_training.judging import Case, JudgePool, Options, open_pool
from dice_training.progress import Progress

if TYPE_CHECKING:
    from dice_training.pool.work import Device

Report = Callable[[str], None]
STRUCTURE_OPS = 4
"""A module of at least so many operators is a structure: any gain over PyTorch is worth keeping."""
CHUNK = 32
"""Rows that are judged, timed and kept together."""


@dataclass(frozen=True)
class Wanted:
    """What is kept: correct, and at least ``speedup`` times as fast as what it replaces (structures: faster at all).

    0: correct is enough, and nothing is timed.
    """

    speedup: float

    def why_not(self, row: Row, verdict: Verdict) -> str | None:
        """The reason to drop a row, None to keep it."""
        if verdict.verdict not in CORRECT:
            return f"{verdict.verdict}:{verdict.rule}" if verdict.rule else verdict.verdict
        if not self.speedup:
            return None
        if row["kind"] == "kernel_body" and not row["reference"]:
            return "nothing slower to compare with"
        if verdict.speedup is None:
            return "not timed"
        return None if fast_enough(row, verdict.speedup, self.speedup) else "too slow"


def fast_enough(row: Row, speedup: float, least: float) -> bool:
    """At least ``least`` times as fast; a structure: faster at all."""
    return speedup > 1.0 if len(row["ops"]) >= STRUCTURE_OPS else speedup >= least


class Ledger:
    """``OUT`` with the rows that were kept, and ``OUT.seen`` with what became of every row that was looked at."""

    def __init__(self, out: Path, resume: bool) -> None:
        self.out, self.seen = out, out.with_name(out.name + ".seen")
        self.reasons: dict[str, str | None] = {}
        self.kept: list[Row] = []
        if not resume:
            out.write_text("", encoding="utf-8")
            self.seen.write_text("", encoding="utf-8")
            return
        for entry in _whole_lines(self.seen):
            self.reasons[entry["id"]] = entry["dropped"]
        self.kept = [row for row in _whole_lines(out) if row["id"] in self.reasons]
        out.write_text("".join(_line(row) for row in self.kept), encoding="utf-8")

    def note(self, row: Row, dropped: str | None) -> None:
        """The row first: an entry without its row would lose it."""
        if dropped is None:
            with self.out.open("a", encoding="utf-8") as lines:
                lines.write(_line(row))
        with self.seen.open("a", encoding="utf-8") as lines:
            lines.write(_line({"id": row["id"], "dropped": dropped}))
        self.reasons[row["id"]] = dropped


def collect(
    places: list[Path],
    out: Path,
    *,
    device: Device,
    pool: str,
    workers: int,
    wanted: Wanted,
    against: list[Path],
    near: float,
    licence: str,
    split: str | None,
    resume: bool,
    report: Report,
) -> dict[str, int]:
    """Import ``places`` into ``out``; how many rows were kept and, by reason, dropped. Raises DataError for sources
    that cannot be read. ``split``: where all rows go; None: by family. Ctrl-C loses nothing but the chunk that is being
    judged: go on with ``resume``."""
    if wanted.speedup and device == "cpu":
        raise DataError("nothing is timed on a CPU: give --min-speedup 0 to keep everything that is correct")
    contamination, duplicates = Contamination(against), Duplicates(near)
    ledger = Ledger(out, resume)
    for row in ledger.kept:
        duplicates.add(row)
    waiting = []
    for row in _rows(places, licence, report):
        if row["id"] in ledger.reasons:
            continue
        row["split"] = split or row["split"]
        if row in contamination:
            ledger.note(row, "an evaluation task")
        else:
            waiting.append(row)
    if waiting:
        with open_pool(pool, Options(device), workers) as opened:
            for row, dropped in _judged(waiting, opened, wanted):
                # Only now: a wrong row must not stand for a right one that is like it.
                again = dropped is None and not duplicates.add(row)
                ledger.note(row, "a duplicate" if again else dropped)
    return dict(Counter(reason or "kept" for reason in ledger.reasons.values()).most_common())


def _rows(places: list[Path], licence: str, report: Report) -> Iterator[Row]:
    taken: Counter[str] = Counter()
    for name, path, content in sources(places):
        try:
            for row in rows_of(name, path, content, licence):
                taken[row["id"]] += 1
                if taken[row["id"]] > 1:
                    row["id"] += f"~{taken[row['id']]}"
                yield row
        except (Unusable, SyntaxError) as error:
            report(f"{name}: {error}")


def _judged(rows: list[Row], pool: JudgePool, wanted: Wanted) -> Iterator[tuple[Row, str | None]]:
    """Rows in their order, so that of two that are alike always the first is kept."""
    with Progress("rows", len(rows)) as progress:
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            cases = [Case(row, [row["core"]]) for row in part]
            ready: dict[int, Verdict] = {}
            following = 0
            for index, (judged,) in pool.judge(cases, measure=wanted.speedup > 0):
                ready[index] = judged.verdict
                progress.advance()
                while following in ready:
                    row, verdict = part[following], ready.pop(following)
                    following += 1
                    row |= measurements(verdict)
                    dropped = wanted.why_not(row, verdict)
                    if dropped is not None:
                        progress.note(f"{row['id']}: {dropped} {verdict.reason[:200]}")
                    yield row, dropped


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file; a last line that was cut off is left out."""
    found = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"
