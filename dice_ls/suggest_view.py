"""How ``dice suggest`` shows its result: a table of candidates with their verdicts and the best one's diff, or JSON."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import Any

from dice_engine.source.hole import Hole
from dice_engine.source.holes import apply
from dice_engine.verify.verdict import Verdict
from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dice_ls.positions import Positions
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import Candidate, Record, ranked, squeezed


def line_of(text: str, hole: Hole) -> int:
    """The line (from 1) where a hole's kernel or class begins."""
    return Positions(text, "utf-32").position(hole.anchor[0]).line + 1


def report(
    path: Path, text: str, hole: Hole, device: str, record: Record, best: Candidate | None
) -> dict[str, Any]:
    place = {
        "kind": hole.kind,
        "name": hole.name,
        "start_byte": hole.start_byte,
        "end_byte": hole.end_byte,
        "line": line_of(text, hole),
    }
    return {
        "file": str(path),
        "hole": place,
        "device": device,
        "candidates": [
            {
                "index": item.index,
                "core": item.core,
                "verdict": item.verdict.to_json() if item.verdict else None,
                "seconds": round(item.seconds, 3),
            }
            for item in sorted(record.candidates.values(), key=lambda item: item.index)
        ],
        "best": best.index if best else None,
    }


def console(stderr: bool = False) -> Console:
    """A console for people; where the output is no terminal it is 120 columns wide, so that tables stay readable."""
    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() or "COLUMNS" in os.environ else 120
    return Console(file=stream, width=wide, highlight=False)


def show(screen: Console, path: Path, text: str, hole: Hole, record: Record, best: Candidate | None) -> None:
    """The table of candidates, the outcome in one sentence, and the best one's diff."""
    screen.print(Text(f"{path}:{line_of(text, hole)}: {hole.kind} `{hole.name}`", style="bold"))
    screen.print(_table(record))
    screen.print(Text(wording.summary(record)))
    if best is not None:
        new = apply(hole, best.core).splitlines()
        name = f"{path} (candidate {best.index})"
        lines = difflib.unified_diff(text.splitlines(), new, str(path), name, lineterm="")
        screen.print(Syntax("\n".join(lines), "diff", background_color="default", word_wrap=True))


def _table(record: Record) -> Table:
    """One row for each different candidate, the offered ones first; columns that would be empty are left out."""
    order = {item.index: rank for rank, item in enumerate(ranked(record.candidates.values()))}
    same: dict[str, list[Candidate]] = {}
    for item in sorted(record.candidates.values(), key=lambda item: (order.get(item.index, 99), item.index)):
        same.setdefault(squeezed(item.core), []).append(item)
    rows = [(", ".join(str(item.index) for item in items), items[0].verdict) for items in same.values()]
    verdicts = [(numbers, verdict) for numbers, verdict in rows if verdict is not None]
    measured = any(verdict.candidate_ms is not None for _, verdict in verdicts)
    table = Table(box=box.SIMPLE)
    table.add_column("#", justify="right", max_width=12)
    table.add_column("verdict", no_wrap=True)
    for heading in ("reference", "candidate", "speedup") if measured else ():
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("checked in", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for numbers, verdict in verdicts:
        times = (
            _unless_none(verdict.reference_ms, "{:.4g} ms"),
            _unless_none(verdict.candidate_ms, "{:.4g} ms"),
            _unless_none(verdict.speedup, "{:.2f}x"),
        )
        colour = "green" if verdict.offerable else "yellow" if verdict.verdict == "no_gain" else "red"
        table.add_row(
            numbers,
            Text(verdict.verdict, style=colour),
            *(times if measured else ()),
            f"{verdict.seconds:.1f} s",
            Text(_why(verdict)),
        )
    return table


def _why(verdict: Verdict) -> str:
    reason = verdict.reason.strip().splitlines()
    rule = f"{verdict.rule}: " if verdict.rule else ""
    return rule + reason[0] if reason else rule + wording.evidence(verdict, times=False)


def _unless_none(value: float | None, layout: str) -> str:
    return "" if value is None else layout.format(value)
