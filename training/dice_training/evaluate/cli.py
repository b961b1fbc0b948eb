"""``dice eval``: the command line of the evaluations."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_training.judging import cores
from dice_training.pool import PoolError
from dice_training.pool.cli import add_pool

if TYPE_CHECKING:
    from dice_engine.verify.session import DeviceName

    from dice_training.pool.work import Device


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
    add_pool(infill)
    infill.add_argument("--out", type=Path, help="write every candidate and verdict here, as JSONL")
    infill.add_argument(
        "--candidates",
        type=Path,
        metavar="FILE",
        help="verify the candidates in FILE, the --out of an evaluation, instead of decoding",
    )
    infill.add_argument("--json", action="store_true", help="print the scores as JSON")
    infill.set_defaults(run=_infill)
    tasks = commands.add_parser("tasks", help="whole rewrites of PyTorch tasks: correctness and speed")
    tasks.add_argument("file", type=Path, help="JSONL with id and pytorch_code a line")
    bench = commands.add_parser("kernelbench", help="the same for a level of KernelBench")
    bench.add_argument("folder", type=Path, help="KernelBench's folder of levels (level1/1_Name.py ...)")
    bench.add_argument("--level", type=int, required=True, choices=[1, 2, 3, 4])
    for command in (tasks, bench):
        command.add_argument(
            "-n", type=int, default=1, help="candidates a task; the first is greedy (default 1)"
        )
        command.add_argument("--temperature", type=float, default=0.8, help="of all but the greedy one (0.8)")
        command.add_argument("--checkpoint", type=Path, help="checkpoint folder (default: the embedded nano)")
        command.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
        command.add_argument("--baseline", choices=["eager", "compile", "both"], default="both")
        command.add_argument("--limit", type=int, help="only the first LIMIT tasks")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--workers", type=int, default=cores(), help="verifying processes (one a core)")
        add_pool(command)
        command.add_argument(
            "--out", type=Path, help="folder of results; a run goes on with what is missing there"
        )
        command.add_argument("--json", action="store_true", help="print the scores as JSON")
        command.set_defaults(run=_benchmark)
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except PoolError as error:
        print(f"dice eval: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dice eval: stopped", file=sys.stderr)
        return 1


def _benchmark(args: argparse.Namespace) -> int:
    import dice_engine
    from dice_engine.model.config import CheckpointError

    from dice_training.data import DataError
    from dice_training.evaluate.benchmark import Protocol, run
    from dice_training.evaluate.page import lines
    from dice_training.tasks import read_kernelbench, read_tasks

    device = resolve_device(args.device)
    checkpoint = args.checkpoint or dice_engine.NANO
    level = getattr(args, "level", None)
    source = args.file if level is None else args.folder / f"level{level}"
    out = args.out or Path("runs") / f"eval-{source.stem}"
    try:
        rows = read_tasks(args.file) if level is None else read_kernelbench(args.folder, level)
        summary = run(
            rows[: args.limit],
            Protocol(
                source=str(source.resolve()),
                checkpoint=_identity(checkpoint),
                n=args.n,
                seed=args.seed,
                temperature=args.temperature,
                device=device,
                baseline=args.baseline if device == "cuda" else "none",
            ),
            out,
            checkpoint=checkpoint,
            device=device,
            workers=args.workers,
            pool=args.pool,
            report=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except (DataError, CheckpointError) as error:
        print(f"dice eval: {error}", file=sys.stderr)
        return 2
    print(
        json.dumps(summary, indent=2)
        if args.json
        else "\n".join([*lines(summary), f"report: {out / 'report.html'}"])
    )
    return 0


def _identity(checkpoint: Path) -> str:
    """The folder and a digest of its weights' sizes and times: another training run is another checkpoint."""
    files = sorted(checkpoint.glob("*.safetensors"))
    stamps = ",".join(f"{file.name}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files)
    return f"{checkpoint.resolve()} {hashlib.blake2b(stamps.encode(), digest_size=6).hexdigest()}"


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
            pool=args.pool,
            out=args.out,
            report=lambda line: print(line, file=sys.stderr, flush=True),
            decoded_before=args.candidates,
        )
    except (DataError, CheckpointError) as error:
        print(f"dice eval: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary, indent=2) if args.json else table(summary))
    return 0


def resolve_device(device: DeviceName) -> Device:
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
    lines.append(f"different candidates a row: {summary['distinct']:.2f}")
    lines.append("verdicts of all candidates: ")
    lines += [f"  {name:32}{count:>6}  {count / total:6.1%}" for name, count in summary["verdicts"].items()]
    return "\n".join(lines)
