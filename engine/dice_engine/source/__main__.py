"""``python -m dice_engine.source FILE [--json]``: the holes of a file (what ``dice holes`` runs)."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from dice_engine.arguments import Arguments
from dice_engine.source.faults import syntax_error
from dice_engine.source.hole import Hole
from dice_engine.source.holes import UnsupportedFile, find_holes
from dice_engine.source.lines import LineMap
from dice_engine.source.project import project_around
from dice_engine.streams import read_text


def main(arguments: list[str] | None = None) -> int:
    """List the holes of one file. 0 when the file was read (with or without holes), 2 for bad use or input."""
    parser = Arguments(prog="dice holes", description="What of a .cu or PyTorch file can be rewritten.")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="machine-readable: a list of holes")
    options = parser.parse_args(arguments)
    path: Path = options.file
    try:
        text = read_text(path)
        holes = find_holes(text, str(path.absolute()), project_around(str(path)))
        if (broken := syntax_error(text, str(path), holes)) is not None:
            return _fail(f"{path}: {broken}")
    except UnicodeDecodeError as error:
        return _fail(f"{path}: not UTF-8 (byte {error.start}): save it as UTF-8")
    except OSError as error:
        return _fail(f"{path}: {error.strerror or error}")
    except UnsupportedFile as error:
        return _fail(f"{path}: {error}")
    if options.json:
        print(json.dumps([_record(hole) for hole in holes], indent=2))
    else:
        _table(holes, text, str(path))
    return 0


def _record(hole: Hole) -> dict[str, object]:
    return {
        "kind": hole.kind,
        "name": hole.name,
        "start_byte": hole.start_byte,
        "end_byte": hole.end_byte,
        "editable": hole.editable,
        "reason": hole.reason,
        "plan": asdict(hole.plan),
    }


def _table(holes: list[Hole], text: str, path: str) -> None:
    if not holes:
        print(
            f"{path}: nothing to rewrite: no kernel, no load_inline source, no nn.Module class or function that "
            "get_inputs(), an @dice line or a recording says how to run"
        )
        return
    lines = LineMap(text)
    rows = [("LINES", "KIND", "NAME", "EDITABLE", "PLAN")]
    for hole in holes:
        # What is inserted stands after its class or function: of use is where that is.
        place = hole.anchor if hole.start_byte == hole.end_byte else (hole.start_byte, hole.end_byte)
        first, last = (lines.position(offset)[0] + 1 for offset in place)
        plan = hole.plan.source if hole.plan.runnable else f"no plan: {hole.plan.reason}"
        if not hole.editable:
            plan = hole.reason or ""
        rows.append((f"{first}-{last}", hole.kind, hole.name, "yes" if hole.editable else "no", plan))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[4])


def _fail(message: str) -> int:
    print(f"dice holes: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
