"""``dice eval``: the command line of the evaluations."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_training.judging import cores

if TYPE_CHECKING:
    from dice_engine.verify.session import DeviceName


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dice eval", description="Score a checkpoint.")
    commands = parser.add_subparsers(dest="command", required=True)
    infill = commands.add_parser("infill", help="pass@k of infilling the test split of a CuKe file")
    infill.add_argument("file", type=Path, help="JSONL from `dice cuke build`")
    infill.add_argument("-n", type=int, default=8, help="candidates a row; the first is greedy (default 8)")
    infill.add_argument("--checkpoint", type=Path, help="checkpoint folder (default: the embedded nano)")
    infill.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    infill.add_argument("--limit", type=int, help="only the first LIMIT rows")
    infill.add_argument("--seed", type=int, default=0)
    infill.add_argument("--workers", type=int, default=cores(), help="verifying processes (one a core)")
    infill.add_argument("--out", type=Path, help="write every candidate and verdict here, as JSONL")
    infill.add_argument(
        "--candidates",
        type=Path,
        metavar="FILE",
        help="verify the candidates in FILE, the --out of an evaluation, instead of decoding",
    )
    infill.add_argument("--json", action="store_true", help="print the scores as JSON")
    args = parser.parse_args(argv)
    try:
        return _infill(args)
    except KeyboardInterrupt:
        print("dice eval: stopped", file=sys.stderr)
        return 1


def _infill(args: argparse.Namespace) -> int:
    from dice_engine.model.config import CheckpointError

    from dice_training.data import DataError
    from dice_training.evaluate.infill import evaluate

    try:
        summary = evaluate(
            args.file,
            checkpoint=args.checkpoint,
            device=resolve_device(args.device),
            n=args.n,
            limit=args.limit,
            seed=args.seed,
            workers=args.workers,
            out=args.out,
            report=lambda line: print(line, file=sys.stderr, flush=True),
            decoded_before=args.candidates,
        )
    except (DataError, CheckpointError) as error:
        print(f"dice eval: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary, indent=2) if args.json else table(summary))
    return 0


def resolve_device(device: DeviceName) -> DeviceName:
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def table(summary: dict[str, Any]) -> str:
    parts = {name: value for name, value in summary.items() if isinstance(value, dict) and "rows" in value}
    columns = list(parts["all"])
    lines = [f"{'':18}" + "".join(f"{column:>10}" for column in columns)]
    for name, scores in parts.items():
        cells = "".join(f"{scores[c]:>10}" if c == "rows" else f"{scores[c]:>10.1%}" for c in columns)
        lines.append(f"{name:18}" + cells)
    total = sum(summary["verdicts"].values())
    lines.append("verdicts of all candidates: ")
    lines += [f"  {name:32}{count:>6}  {count / total:6.1%}" for name, count in summary["verdicts"].items()]
    return "\n".join(lines)
