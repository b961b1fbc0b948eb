"""``dice cuke build|stats``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from dice_training.cuke.generate import KIND_SHARE, sample
from dice_training.cuke.stats import print_stats, read_rows

_CHUNK = 500


def _chunk(seed: int, start: int, count: int, kind: str | None, split: str | None) -> list[str]:
    return [json.dumps(sample(seed, i, kind, split), ensure_ascii=False) for i in range(start, start + count)]  # type: ignore[arg-type]


def build(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if not out.parent.is_dir():
        print(f"error: {out.parent} is not a folder; create it or choose another --out", file=sys.stderr)
        return 2
    starts = list(range(args.start, args.start + args.count, _CHUNK))
    counts = [min(_CHUNK, args.start + args.count - s) for s in starts]
    kind, split = args.kind, None if args.split == "both" else args.split
    began, done = time.monotonic(), 0
    partial = out.with_name(out.name + ".part")
    with partial.open("w", encoding="utf-8") as file, ProcessPoolExecutor(max(1, args.workers)) as pool:
        chunks = (
            pool.map(_chunk, repeat(args.seed), starts, counts, repeat(kind), repeat(split))
            if args.workers > 1
            else map(_chunk, repeat(args.seed), starts, counts, repeat(kind), repeat(split))
        )
        for lines in chunks:
            file.writelines(line + "\n" for line in lines)
            done += len(lines)
            if sys.stderr.isatty():
                rate = done / (time.monotonic() - began)
                print(f"\r{done}/{args.count} samples, {rate:.0f}/s", end="", file=sys.stderr)
    partial.replace(out)
    seconds = time.monotonic() - began
    print(f"{done} samples in {seconds:.1f} s ({done / max(seconds, 1e-9):.0f}/s) -> {out}")
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
    make.set_defaults(run=build)
    show = commands.add_parser("stats", help="counts, lengths and operator coverage of a file")
    show.add_argument("file")
    show.add_argument("--json", action="store_true")
    show.set_defaults(run=stats)
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return args.run(args)
