"""``dice cuke build|import|merge|coverage|stats``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from dice_training.cuke.build import build
from dice_training.cuke.generate import KIND_SHARE
from dice_training.cuke.stats import print_stats
from dice_training.cuke.traced import INVENTED
from dice_training.judging import cores
from dice_training.pool import PoolError
from dice_training.pool.cli import add_pool
from dice_training.progress import Progress


def bring(args: argparse.Namespace) -> int:
    from dice_training.cuke.collect import Wanted, collect
    from dice_training.data import DataError
    from dice_training.evaluate.cli import resolve_device

    try:
        counts = collect(
            args.sources,
            args.out,
            device=resolve_device(args.device),
            pool=args.pool,
            workers=args.workers,
            wanted=Wanted(args.min_speedup),
            against=args.against,
            near=args.near,
            licence=args.licence,
            split=None if args.split == "family" else args.split,
            resume=args.resume,
            report=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; go on with the same options and --resume", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(counts))
    else:
        dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items() if reason != "kept")
        print(f"{counts.get('kept', 0)} rows -> {args.out}" + (f"; dropped: {dropped}" if dropped else ""))
    return 0 if counts.get("kept") else 1


def stats(args: argparse.Namespace) -> int:
    path = Path(args.file)
    if not path.is_file():
        print(f"error: {path} does not exist; make it with: dice cuke build --out {path}", file=sys.stderr)
        return 2
    # Imported here: building needs no tokenizer, and its workers start faster without one.
    from dice_training.data import DataError, read_rows

    try:
        print_stats(read_rows(path), as_json=args.json, plot=args.plot)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def cover(args: argparse.Namespace) -> int:
    # Imported here: it brings torch, which building does without.
    from dice_training.cuke.traced.coverage import Coverage, coverage, dumped, text_of
    from dice_training.cuke.traced.tasks import tasks_of
    from dice_training.data import DataError

    try:
        tasks = tasks_of(str(args.file))[:: args.every]
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = Coverage()
    with Progress("tasks", len(tasks)) as progress:
        for task in coverage(tasks, args.workers):
            found.add(task)
            progress.advance(f"{found.written / found.tasks:.1%} written")
    print(dumped(found) if args.json else text_of(found))
    return 0


def merge(args: argparse.Namespace) -> int:
    from dice_training.cuke.merge import merged
    from dice_training.data import DataError

    try:
        counts = merged(args.files, args.out, args.min_speedup)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{counts.rows} rows, {counts.timed} of them timed -> {args.out}; {counts.slow} too slow")
    return 0 if counts.rows else 1


def _add_against(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--against",
        type=Path,
        nargs="+",
        default=[],
        metavar="PLACE",
        help="folders of evaluation tasks, or their JSONL: no row may compute what one of them does",
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="dice cuke", description="Build and describe training data.")
    commands = top.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="write samples as JSON lines")
    make.add_argument("--out", required=True)
    make.add_argument(
        "--tasks",
        metavar="FILE",
        help=f"answers to PyTorch tasks: JSONL with id and pytorch_code, or '{INVENTED}' for made-up ones",
    )
    make.add_argument("--count", type=int, default=1000)
    make.add_argument("--seed", type=int, default=0)
    make.add_argument("--start", type=int, default=0, help="index of the first sample: shards of one seed")
    make.add_argument("--kind", choices=list(KIND_SHARE), help="only this form")
    make.add_argument("--split", choices=("train", "test", "both"), default="both")
    make.add_argument("--workers", type=int, default=1)
    make.add_argument(
        "--verify", choices=("auto", "cpu", "cuda"), help="keep only what verifies on this device"
    )
    make.add_argument(
        "--verified",
        type=Path,
        metavar="LIST",
        help="rows found correct before are taken, and --verify adds to them; without --verify others are dropped",
    )
    add_pool(make)
    make.add_argument("--max-seconds", type=float, help="stop cleanly after this time")
    make.add_argument("--resume", action="store_true", help="go on after the last row of --out")
    make.add_argument(
        "--measure",
        action="store_true",
        help="time what is correct against PyTorch, or against the body before",
    )
    _add_against(make)
    make.set_defaults(run=build)
    take = commands.add_parser("import", help="rows of your own kernels: folders, files, published JSONL")
    take.add_argument(
        "sources", nargs="+", type=Path, help="folders or files: .py with load_inline, .cu, .jsonl"
    )
    take.add_argument("--out", required=True, type=Path)
    take.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    take.add_argument("--workers", type=int, default=cores(), help="verifying processes (one a core)")
    add_pool(take)
    take.add_argument(
        "--min-speedup",
        type=float,
        default=2.0,
        metavar="X",
        help="over PyTorch in the same run (2.0; structures of many operators: faster at all; 0: correct is enough)",
    )
    _add_against(take)
    take.add_argument(
        "--near", type=float, default=0.9, metavar="SHARE", help="rows alike from here on count once (0.9)"
    )
    take.add_argument(
        "--split",
        choices=("family", "train", "test"),
        default="family",
        help="where the rows go: some families to the test split (default), or all to one of them",
    )
    take.add_argument("--licence", default="", help="kept in every row")
    take.add_argument("--resume", action="store_true", help="go on with what was not looked at yet")
    take.add_argument("--json", action="store_true")
    take.set_defaults(run=bring)
    share = commands.add_parser("coverage", help="how much of a file of PyTorch tasks the teacher can write")
    share.add_argument("file", type=Path, help="JSONL with id and pytorch_code")
    share.add_argument("--every", type=int, default=1, metavar="N", help="look at one task in N")
    share.add_argument("--workers", type=int, default=cores())
    share.add_argument("--json", action="store_true")
    share.set_defaults(run=cover)
    join = commands.add_parser("merge", help="one file of several, with the times that any of them has")
    join.add_argument("files", nargs="+", type=Path, help="JSONL that dice cuke build or import wrote")
    join.add_argument("--out", required=True, type=Path)
    join.add_argument(
        "--min-speedup",
        type=float,
        default=0.0,
        metavar="X",
        help="leave out what was timed and is less than X times as fast (structures of many operators: not faster)",
    )
    join.set_defaults(run=merge)
    show = commands.add_parser("stats", help="counts, lengths and operator coverage of a file")
    show.add_argument("file")
    show.add_argument("--json", action="store_true")
    show.add_argument("--plot", type=Path, metavar="FILE", help="draw it too (.png, .svg or .pdf)")
    show.set_defaults(run=stats)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        return args.run(args)
    except PoolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return 0
    except OSError as error:
        print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2
