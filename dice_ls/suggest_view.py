"""How ``dice suggest`` looks: each candidate live, then a table of verdicts and the best one's diff, or JSON."""

from __future__ import annotations

import difflib
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dice_engine.source.hole import Hole
from dice_engine.source.holes import apply
from dice_engine.verify.verdict import Verdict
from rich import box
from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dice_ls.positions import Positions
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import Candidate, Record, ranked, squeezed

if TYPE_CHECKING:
    from dice_ls.search import Found


def line_of(text: str, hole: Hole) -> int:
    """The line (from 1) where a hole's kernel or class begins."""
    return Positions(text, "utf-32").position(hole.anchor[0]).line + 1


def report(found: Found, best: Candidate | None) -> dict[str, Any]:
    hole, record = found.hole, found.record
    place = {
        "kind": hole.kind,
        "name": hole.name,
        "start_byte": hole.start_byte,
        "end_byte": hole.end_byte,
        "line": line_of(found.text, hole),
    }
    return {
        "file": str(found.path),
        "hole": place,
        "device": found.device,
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


class Live:
    """The candidates of a search while it runs, in a terminal; elsewhere nothing is shown."""

    def __init__(self, screen: Console, record: Record) -> None:
        self._record = record
        self._spinner = Spinner("dots")
        self._live = (
            RichLive(console=screen, transient=True, refresh_per_second=8) if screen.is_terminal else None
        )

    def __enter__(self) -> Live:
        if self._live is not None:
            self._live.start()
            self.update()
        return self

    def update(self) -> None:
        if self._live is not None:
            self._spinner.update(text=_headline(self._record))
            self._live.update(Group(self._spinner, _progress(self._record)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def _headline(record: Record) -> Text:
    return Text(f"`{record.hole.name}`: {wording.progress(record)}")


def _progress(record: Record) -> Table:
    """One line for each candidate, in the order of their numbers."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(justify="right", style="dim")
    for index in range(record.expected):
        candidate = record.candidates.get(index)
        if candidate is None:
            tokens = record.tokens.get(index, 0)
            rows.add_row(
                str(index), Text(wording.plural(tokens, "token") if tokens else "waiting", style="dim")
            )
        elif candidate.verdict is None:
            rows.add_row(str(index), Text("being checked", style="cyan"))
        else:
            verdict = candidate.verdict
            gain = _unless_none(verdict.speedup, "{:.2f}x")
            rows.add_row(str(index), Text(verdict.verdict, style=_colour(verdict)), gain, Text(_why(verdict)))
    return rows


def show(screen: Console, found: Found, best: Candidate | None) -> None:
    """The table of candidates, the outcome in one sentence, and the best one's diff."""
    path, text, hole, record = found.path, found.text, found.hole, found.record
    screen.print(Text(f"{path}:{line_of(text, hole)}: {hole.kind} `{hole.name}`", style="bold"))
    screen.print(_table(record))
    screen.print(Text(wording.summary(record)))
    if best is not None:
        new = apply(hole, best.core).splitlines()
        name = f"{path} (candidate {best.index})"
        lines = difflib.unified_diff(text.splitlines(), new, str(path), name, lineterm="")
        # The terminal's own colours: readable on light and dark ones.
        screen.print(Syntax("\n".join(lines), "diff", theme="ansi_dark", word_wrap=True))


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
        table.add_row(
            numbers,
            Text(verdict.verdict, style=_colour(verdict)),
            *(times if measured else ()),
            f"{verdict.seconds:.1f} s",
            Text(_why(verdict)),
        )
    return table


def _colour(verdict: Verdict) -> str:
    return "green" if verdict.offerable else "yellow" if verdict.verdict == "no_gain" else "red"


def _why(verdict: Verdict) -> str:
    reason = verdict.reason.strip().splitlines()
    rule = f"{verdict.rule}: " if verdict.rule else ""
    return rule + reason[0] if reason else rule + wording.evidence(verdict, times=False)


def _unless_none(value: float | None, layout: str) -> str:
    return "" if value is None else layout.format(value)
