"""``dice bench verify``: seconds per verdict. A kernel is judged against itself, a Model against its ModelNew.

With ``--field``: forty modules, against the usual way to judge them (see ``field``).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as values
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.arguments import Arguments, whole
from dice_engine.bench.programs import RELU, ROWS
from dice_engine.source import pytorch
from dice_engine.source.holes import UnsupportedFile, apply, find_holes

if TYPE_CHECKING:
    from dice_engine.verify.session import DeviceName


class InputError(Exception):
    """A file that cannot be used; one line."""


def main(argv: list[str] | None = None) -> int:
    parser = Arguments(
        prog="dice bench verify",
        description="How long a verdict takes. Compiles and runs the code of FILE; nothing is cached.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=".cu or .py (two built-in ones)")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument(
        "--rounds", type=whole(1), default=2, help="verdicts on each pair (2); the first is cold"
    )
    parser.add_argument(
        "--field", action="store_true", help="judge 40 modules, and a sample of them with torch's load_inline"
    )
    parser.add_argument(
        "--modules", type=whole(1, 40), default=40, help="with --field: only the first of them (40)"
    )
    parser.add_argument(
        "--workers", type=whole(1), help="with --field: sessions at once (a core each, less one)"
    )
    parser.add_argument(
        "--sample", type=whole(0), default=8, help="with --field: modules for load_inline, a minute each (8)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    if options.field:
        return _field(options)
    try:
        texts = {str(path): _read(path) for path in options.files} or {"rows.cu": ROWS, "relu.py": RELU}
        chosen = [pair for path, text in texts.items() for pair in pairs(path, text)]
        if not chosen:
            raise InputError("no kernel with a plan and no Model with a ModelNew in these files")
        report = measure(chosen, options.device, options.rounds)
    except InputError as error:
        print(f"dice bench verify: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps(report))
        return 0
    width = max(len(f"{pair['file']} {pair['name']}") for pair in report["pairs"])
    for pair in report["pairs"]:
        seconds = "  ".join(f"{value:6.2f}" for value in pair["seconds"])
        print(f"{pair['file']} {pair['name']}".ljust(width), f"{seconds} s  {pair['verdict']}")
    print(
        f"median {report['median_seconds']:.2f} s, longest {report['max_seconds']:.2f} s on {report['device']}"
    )
    return 0


def _field(options: Any) -> int:
    from dice_engine.bench import field
    from dice_engine.verify.worker import Failed

    workers = options.workers or max(1, min(15, (os.cpu_count() or 2) - 1))
    try:
        report = field.measure(options.device, options.modules, workers, options.rounds, options.sample)
    except Failed as failure:
        print(f"dice bench verify: {failure.reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(json.dumps(report) if options.json else "\n".join(field.lines(report)))
    return 0


@dataclass
class Pair:
    """One thing to judge: a kernel by its name, or the classes of a Python file."""

    file: str
    kernel: str | None
    original: str
    candidate: str
    seconds: list[float] = values(default_factory=list)
    verdict: str = ""


def pairs(path: str, text: str) -> Iterator[Pair]:
    """What can be judged in a file."""
    if path.endswith(".py"):
        names = {module.name for module in pytorch.module_classes(pytorch.parse(text.encode()))}
        if {"Model", "ModelNew"} <= names:
            yield Pair(path, None, text, text)
        return
    for hole in find_holes(text, path):
        if hole.editable and hole.plan.runnable:
            again = apply(hole, hole.core.replace("\r\n", "\n") + "// again\n")
            yield Pair(path, hole.name, text, again)


def measure(chosen: list[Pair], device: DeviceName, rounds: int) -> dict[str, Any]:
    """Judge every pair, ``rounds`` times over. Raises InputError for a device that is not there."""
    from dice_engine.verify.zygote import Zygote

    zygote = Zygote.shared()  # it imports torch while this process does
    from dice_engine.verify.interrupt import ends_at_once
    from dice_engine.verify.session import VerifySession
    from dice_engine.verify.worker import Failed

    try:
        with VerifySession(device) as session, ends_at_once(session.abandon):
            for _ in range(rounds):
                for pair in chosen:
                    start = time.perf_counter()
                    if pair.kernel:
                        verdict = session.verify_kernel(pair.original, pair.candidate, pair.kernel)
                    else:
                        verdict = session.verify_module(pair.original, pair.candidate)
                    pair.seconds.append(round(time.perf_counter() - start, 3))
                    pair.verdict = verdict.verdict
            where = session.device
    except Failed as failure:
        raise InputError(failure.reason) from None
    finally:
        zygote.close()
    every = [seconds for pair in chosen for seconds in pair.seconds]
    return {
        "device": where,
        "pairs": [
            {"file": p.file, "name": p.kernel or "ModelNew", "verdict": p.verdict, "seconds": p.seconds}
            for p in chosen
        ],
        "median_seconds": round(statistics.median(every), 3),
        "max_seconds": max(every),
    }


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode()
        find_holes("", str(path))
        return text
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnsupportedFile as error:
        raise InputError(f"{path}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
