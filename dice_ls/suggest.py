"""``dice suggest FILE[:LINE[:COL]]``: decode rewrites of one hole, check each, show the verdicts and the best diff."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from dice_engine.arguments import Arguments
from dice_engine.source.holes import apply

from dice_ls import search
from dice_ls.search import Refused
from dice_ls.suggest_view import console, report, show


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    screen = console(stderr=options.json)
    try:
        if options.apply:
            _can_write(search.path_of(options.place))
        found = search.search(options, screen, quiet=options.json)
        best = next(iter(found.record.offers()), None)
        if options.json:
            print(json.dumps(report(found, best)))
        else:
            show(screen, found, best)
        if best is None:
            return 1
        if options.apply:
            _write(found.path, found.text, apply(found.hole, best.core))
            screen.print(f"wrote {found.path}")
    except Refused as refusal:
        print(f"dice suggest: {refusal}", file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> Arguments:
    parser = Arguments(
        prog="dice suggest",
        description="Decode faster versions of a kernel or module, check each against the original and time it. "
        "This compiles and runs code of FILE.",
    )
    search.arguments(parser)
    parser.add_argument("--apply", action="store_true", help="write the best verified rewrite to FILE")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _can_write(path: Path) -> None:
    if path.exists() and not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)):
        raise Refused(f"cannot write {path}: Permission denied")


def _write(path: Path, before: str, after: str) -> None:
    """Replace the file in one step, keeping its mode; refused when it changed since it was read."""
    if search.read(path) != before:
        raise Refused(f"{path} changed while its rewrite was checked; nothing was written")
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(after.encode("utf-8"))
            Path(name).chmod(target.stat().st_mode)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
