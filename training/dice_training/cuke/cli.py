"""``dice cuke build|stats``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from dice_training.cuke.generate import KIND_SHARE, sample
from dice_training.cuke.stats import print_stats, read_rows
from dice_training.cuke.verify import is_correct, verified

_CHUNK = 500


def _chunk(start: int, count: int, seed: int, kind: Any, split: str | None) -> list[str]:
    return [json.dumps(sample(seed, i, kind, split), ensure_ascii=False) for i in range(start, start + count)]


def _written(args: argparse.Namespace) -> Iterator[str]:
    """Rows as JSON, in the order of their index, whatever the number of workers."""
    starts = list(range(args.start, args.start + args.count, _CHUNK))
    counts = [min(_CHUNK, args.start + args.count - s) for s in starts]
    make = partial(_chunk, seed=args.seed, kind=args.kind, split=None if args.split == "both" else args.split)
    with contextlib.ExitStack() as stack:
        spread = stack.enter_context(ProcessPoolExecutor(args.workers)).map if args.workers > 1 else map
        for lines in spread(make, starts, counts):
            yield from lines


def build(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if not out.parent.is_dir():
        print(f"error: {out.parent} is not a folder; create it or choose another --out", file=sys.stderr)
        return 2
    if args.count < 1 or args.workers < 1:
        print("error: --count and --workers must be at least 1", file=sys.stderr)
        return 2
    began, done, kept = time.monotonic(), 0, 0
    dropped: Counter[str] = Counter()
    rows = _written(args)
    if args.verify:
        rows = verified(rows, args.verify, args.workers)
    partial_file = out.with_name(out.name + ".part")
    with partial_file.open("w", encoding="utf-8") as file:
        for line in rows:
            done += 1
            if args.verify and not is_correct(row := json.loads(line)):
                verdict = row["verdict"]
                dropped[verdict["verdict"]] += 1
                print(
                    f"{row['id']} {row['kind']} {row['family']}: {verdict['verdict']} {verdict['reason']}",
                    file=sys.stderr,
                )
                continue
            file.write(line + "\n")
            kept += 1
            if sys.stderr.isatty() and done % 50 == 0:
                rate = done / (time.monotonic() - began)
                print(f"\r{done}/{args.count} samples, {rate:.0f}/s", end="", file=sys.stderr)
    partial_file.replace(out)
    seconds = time.monotonic() - began
    losses = f"; dropped {dict(dropped)}" if dropped else ""
    print(f"{kept} samples in {seconds:.1f} s ({done / max(seconds, 1e-9):.0f}/s) -> {out}{losses}")
    return 0


def stats(args: argparse.Namespace) -> int:
    path = Path(args.file)
    if not path.is_file():
        print(f"error: {path} does not exist; make it with: dice cuke build --out {path}", file=sys.stderr)
        return 2
    print_stats(read_rows(path), as_json=args.json)
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="dice cuke", description="Build and describe training data.")
    commands = top.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="write samples as JSON lines")
    make.add_argument("--out", required=True)
    make.add_argument("--count", type=int, default=1000)
    make.add_argument("--seed", type=int, default=0)
    make.add_argument("--start", type=int, default=0, help="index of the first sample: shards of one seed")
    make.add_argument("--kind", choices=list(KIND_SHARE), help="only this form")
    make.add_argument("--split", choices=("train", "test", "both"), default="both")
    make.add_argument("--workers", type=int, default=1)
    make.add_argument(
        "--verify", choices=("auto", "cpu", "cuda"), help="keep only what verifies on this device"
    )
    make.set_defaults(run=build)
    show = commands.add_parser("stats", help="counts, lengths and operator coverage of a file")
    show.add_argument("file")
    show.add_argument("--json", action="store_true")
    show.set_defaults(run=stats)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        return args.run(args)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return 0
    except OSError as error:
        print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2
