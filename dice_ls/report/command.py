"""``dice report FILE[:LINE[:COL]] --out page.html``: search as ``dice suggest`` does, write the evidence as one page.

``--json`` prints the evidence instead; a file with that JSON may be given in the place of FILE to draw it later.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from dice_engine.arguments import Arguments

from dice_ls import search
from dice_ls.report import render
from dice_ls.search import Found, Refused
from dice_ls.suggest_view import console
from dice_ls.suggestions.evidence import evidence, ordered
from dice_ls.suggestions.trace import NoTrace, trace

_SOURCES = {".cu", ".cuh", ".py", ".json", ".h", ".hpp", ".cpp", ".toml"}
"""A page under such a name is a slip of the hand that costs a file."""


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    screen = console(stderr=True)
    try:
        if options.out is None and not options.json:
            raise Refused("say where the page goes: --out report.html (or --json)")
        if options.out is not None and options.out.suffix in _SOURCES:
            raise Refused(f"{options.out} would be a page named like a source: --out report.html")
        if options.place.endswith(".json"):
            told = _read(Path(options.place))
        else:
            told = _told(search.search(options, screen, quiet=False))
        if options.json:
            print(json.dumps(told))
        if options.out is not None:
            _write(options.out, render(told["evidence"], told["traces"]))
            screen.print(f"wrote {options.out}")
    except Refused as refusal:
        print(f"dice report: {refusal}", file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return 130
    return 0 if any(one["offerable"] for one in told["evidence"]["candidates"]) else 1


def _parser() -> Arguments:
    parser = Arguments(
        prog="dice report",
        description="Write the evidence for a search as one HTML file. This compiles and runs code of FILE, unless "
        "FILE is the JSON of an earlier report.",
    )
    search.arguments(parser)
    parser.add_argument("--out", type=Path, metavar="PAGE.html", help="where the page is written")
    parser.add_argument("--json", action="store_true", help="print the evidence and the traces as JSON")
    return parser


def _told(found: Found) -> dict[str, Any]:
    """What the page shows: ``evidence`` and ``traces`` in the shapes of ``dice_ls.contract``."""
    told = evidence(
        found.path.resolve().as_uri(),
        found.hole_id,
        found.hole,
        found.record,
        stale=False,
        device=found.device,
    )
    traces = []
    for candidate in ordered(found.record):
        try:
            traces.append(trace(found.hole_id, candidate, found.record.checkpoint))
        except NoTrace:
            continue
    return {"evidence": {**told, "file": found.path.name}, "traces": traces}


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}") from error
    shaped = (
        isinstance(told, dict)
        and isinstance(told.get("traces"), list)
        and isinstance(told.get("evidence"), dict)
    )
    if not shaped or not {"name", "candidates", "summary", "markdown"} <= told["evidence"].keys():
        raise Refused(f"{path} is not what `dice report --json` prints")
    return told


def _write(path: Path, page: str) -> None:
    """Write the whole page or nothing: a failure leaves what was there."""
    special = path.exists() and not path.is_file()  # a pipe, /dev/stdout
    target = path if special else path.resolve().with_name(f".{path.name}-{os.getpid()}")
    try:
        target.write_text(page, encoding="utf-8")
        if target != path:
            target.replace(path.resolve())
    except OSError as error:
        if target != path:
            target.unlink(missing_ok=True)
        raise Refused(f"cannot write {path}: {error.strerror}") from error
