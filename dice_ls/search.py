"""From FILE[:LINE[:COL]] to candidates with verdicts: what ``dice suggest`` and ``dice report`` have in common."""

from __future__ import annotations

import argparse
import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from dice_engine.arguments import Arguments, whole
from dice_engine.source.faults import syntax_error
from dice_engine.source.hole import Hole
from dice_engine.source.holes import UnsupportedFile, find_holes, hole_at
from dice_engine.source.project import project_around
from dice_engine.streams import read_text
from lsprotocol.types import Position
from rich.console import Console

from dice_ls.positions import Positions
from dice_ls.suggest_view import Live, line_of
from dice_ls.suggestions import wording
from dice_ls.suggestions.pipeline import EngineError, NotCheckable, Request, connect, suggest
from dice_ls.suggestions.store import HoleId, Record, context_digest, identify

_FIRST = ("load_inline_core", "kernel_body", "selection", "module")
"""What is rewritten when no place was named: a whole CUDA source before one kernel of it, a plain module last."""


class Refused(Exception):
    """Nothing can be suggested: one clear line, and the exit code that goes with it."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Found:
    """The outcome of a search: the file as it was read, the hole, its candidates, the engine's device."""

    path: Path
    text: str
    hole: Hole
    hole_id: HoleId
    record: Record
    device: str


def arguments(parser: Arguments) -> None:
    """What every search takes."""
    parser.add_argument(
        "place", metavar="FILE[:LINE[:COL]]", help="a .cu or .py file, lines and columns from 1"
    )
    parser.add_argument(
        "-n", type=whole(1, 64), default=8, metavar="N", help="how many candidates to decode (8)"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="where to decode, check and time (auto: the GPU where there is one)",
    )
    parser.add_argument("--checkpoint", metavar="PATH", help="folder of the model (the embedded one)")


def search(options: argparse.Namespace, screen: Console, quiet: bool) -> Found:
    """Decode and check for the place that the arguments name. Raises Refused."""
    path, line, column = _place(options.place)
    text = read(path)
    hole = choose(text, str(path), line, column)
    if not quiet and line is None:
        _mention_others(screen, text, str(path), hole)
    return asyncio.run(_run(options, path, text, hole, screen))


def path_of(place: str) -> Path:
    """The file of FILE[:LINE[:COL]]."""
    return _place(place)[0]


def _place(place: str) -> tuple[Path, int | None, int | None]:
    """FILE[:LINE[:COL]]; a file whose own name ends like a position is taken as a name when it exists."""
    if Path(place).exists():
        return Path(place), None, None
    found = re.fullmatch(r"(.+?):(\d+)(?::(\d+))?", place)
    if found is None:
        return Path(place), None, None
    return Path(found[1]), int(found[2]), int(found[3]) if found[3] else None


def read(path: Path) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error


def choose(text: str, path: str, line: int | None, column: int | None) -> Hole:
    """The hole at a place, else the first of the best kind that can be rewritten and run.

    Raises Refused with what to do.
    """
    try:
        holes = find_holes(text, str(Path(path).absolute()), project_around(path))
    except UnsupportedFile as error:
        raise Refused(f"{path}: {error}") from error
    if (broken := syntax_error(text, path, holes)) is not None:
        raise Refused(f"{path}: {broken}")
    if not holes:
        raise Refused(f"{path} has no kernel or module that could be rewritten")
    if line is not None:
        positions = Positions(text, "utf-32")
        # The empty line after the last line end is none that people count.
        count = positions.line_count - (positions.line(positions.line_count - 1) == "")
        if not 1 <= line <= count:
            raise Refused(f"{path} has no line {line}, the last is {count}")
        start = positions.line(line - 1)
        at = len(start) - len(start.lstrip()) if column is None else column - 1
        hole = hole_at(holes, positions.offset(Position(line - 1, at)))
        if hole is None:
            places = ", ".join(f"`{item.name}`" for item in holes)
            raise Refused(f"no kernel or module at {path}:{line}; the file has {places}")
    else:
        usable = [hole for hole in holes if hole.editable and hole.plan.runnable]
        hole = min(usable or holes, key=lambda hole: _FIRST.index(hole.kind))
    if not hole.editable:
        raise Refused(f"`{hole.name}` cannot be rewritten: {hole.reason}", code=1)
    if not hole.plan.runnable:
        raise Refused(f"`{hole.name}` cannot be checked: {hole.plan.reason}", code=1)
    return hole


def _mention_others(screen: Console, text: str, path: str, chosen: Hole) -> None:
    holes = find_holes(text, str(Path(path).absolute()), project_around(path))
    others = [hole for hole in holes if hole.editable and hole != chosen]
    if others:
        lines = [f"{hole.name} ({path}:{line_of(text, hole)})" for hole in others]
        screen.print(f"rewriting `{chosen.name}`; also here: {', '.join(lines)}", style="dim")


async def _run(options: argparse.Namespace, path: Path, text: str, hole: Hole, screen: Console) -> Found:
    """Raises Refused when the engine is no help."""
    # The engine runs elsewhere: a relative path would mean another folder there.
    checkpoint = str(Path(options.checkpoint).expanduser().resolve()) if options.checkpoint else None
    project = project_around(str(path))
    whole = str(path.absolute())
    request = Request(whole, text, hole, options.n, options.device, checkpoint, project)
    identity = next(name for name, item in identify(find_holes(text, whole, project)) if item == hole)
    record = Record(identity, context_digest(text, hole), plan=hole.plan, checkpoint=checkpoint)
    try:
        client = await connect()
        try:
            with Live(screen, record) as live:
                async with aclosing(suggest(client, request, record)) as changes:
                    async for _ in changes:
                        live.update()
            record.state, record.message = "done", wording.summary(record)
            record.when = datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds")
            device = (await client.status()).device
        finally:
            await client.close()
    except NotCheckable as error:
        raise Refused(str(error), code=1) from error
    except EngineError as error:
        raise Refused(str(error)) from error
    return Found(path, text, hole, identity, record, device)
