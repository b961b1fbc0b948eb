"""How ``dice suggest`` shows its result: a table of candidates with their verdicts and the best one's diff, or JSON."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from dice_engine.source.hole import Hole
from dice_engine.source.holes import apply
from rich import box
from rich.console import Console, JustifyMethod
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from dice_ls.positions import Positions
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import Candidate, Record, ranked


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


def show(console: Console, path: Path, text: str, hole: Hole, record: Record, best: Candidate | None) -> None:
    table = Table(box=box.SIMPLE, title=Text(f"{path}: {hole.kind} `{hole.name}`"), title_justify="left")
    headings: tuple[tuple[str, JustifyMethod], ...] = (
        ("#", "right"),
        ("verdict", "left"),
        ("reference", "right"),
        ("candidate", "right"),
        ("speedup", "right"),
        ("checked in", "right"),
        ("why", "left"),
    )
    for heading, justify in headings:
        table.add_column(heading, justify=justify, overflow="fold")
    order = {item.index: rank for rank, item in enumerate(ranked(record.candidates.values()))}
    for item in sorted(record.candidates.values(), key=lambda item: (order.get(item.index, 99), item.index)):
        verdict = item.verdict
        if verdict is None:
            continue
        colour = "green" if verdict.offerable else "yellow" if verdict.verdict == "no_gain" else "red"
        rule = f"{verdict.rule}: " if verdict.rule else ""
        reason = verdict.reason.strip().splitlines()
        table.add_row(
            str(item.index),
            Text(verdict.verdict, style=colour),
            "" if verdict.reference_ms is None else f"{verdict.reference_ms:.4g} ms",
            "" if verdict.candidate_ms is None else f"{verdict.candidate_ms:.4g} ms",
            "" if verdict.speedup is None else f"{verdict.speedup:.2f}x",
            f"{item.seconds:.1f} s",
            Text(rule + (reason[0] if reason else wording.evidence(verdict))),
        )
    console.print(table)
    console.print(Text(wording.summary(record)))
    if best is not None:
        new = apply(hole, best.core).splitlines()
        name = f"{path} (candidate {best.index})"
        lines = difflib.unified_diff(text.splitlines(), new, str(path), name, lineterm="")
        console.print(Syntax("\n".join(lines), "diff", background_color="default", word_wrap=True))
