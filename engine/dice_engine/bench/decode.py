"""``dice bench decode``: milliseconds per pass of the network and tokens per second of a checkpoint on this device; on
a GPU also of the published sizes, next to the time it takes to read their weights once."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from dice_engine.arguments import Arguments, whole
from dice_engine.bench.programs import ROWS
from dice_engine.prompts import PromptError, build_prompt, core_request
from dice_engine.runtime import share_cores
from dice_engine.source.holes import decode, find_holes

SHAPES = ("1.7B", "4B", "8B")


def main(argv: list[str] | None = None) -> int:
    parser = Arguments(prog="dice bench decode", description="How fast a checkpoint decodes on this device.")
    parser.add_argument("--checkpoint", metavar="PATH", help="folder of the model (the embedded one)")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("-n", type=whole(1, 64), default=8, metavar="N", help="candidates in the batch (8)")
    parser.add_argument("--tokens", type=whole(1), default=128, help="tokens of each candidate (128)")
    parser.add_argument(
        "--shapes",
        type=_shapes,
        default=None,
        metavar="LIST",
        help="sizes to measure with random weights on a GPU: 1.7B,4B,8B (all), or none",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(argv)
    share_cores()
    from dice_engine.model.config import CheckpointError

    say: Callable[[str], None] = (lambda line: None) if options.json else print
    try:
        report = measure(options.checkpoint, options.device, options.n, options.tokens)
        if not options.json:
            _print(report, options.tokens)
        if report["device"] != "cpu":
            report["shapes"] = _measure_shapes(options.shapes, say)
        elif options.shapes:
            raise ValueError("--shapes needs a GPU")
    except (CheckpointError, PromptError, ValueError) as error:
        print(f"dice bench decode: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps(report))
    return 0


def _print(report: dict[str, Any], tokens: int) -> None:
    print(f"{report['checkpoint']} on {report['device']}, loaded in {report['load_seconds']:.2f} s")
    print(f"prompt of {report['prompt_tokens']} tokens, {tokens} new tokens for each candidate")
    for batch in report["batches"]:
        print(
            f"{batch['n']:3} candidates: {batch['ms_per_forward']:8.2f} ms per forward, "
            f"{batch['tokens_per_second']:8.0f} tokens/s, {batch['tokens_per_forward']:.2f} tokens per forward"
        )


def _shapes(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(SHAPES)}")
    return names


def _measure_shapes(shapes: list[str] | None, report: Callable[[str], None]) -> dict[str, Any]:
    from dice_engine.bench.shapes import copy_bandwidth, measure_shape

    chosen = list(SHAPES) if shapes is None else shapes
    if not chosen:
        return {}
    bandwidth = copy_bandwidth("cuda")
    report(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s")
    return {
        "copy_bandwidth": round(bandwidth),
        "sizes": [measure_shape(shape, bandwidth, "cuda", report) for shape in chosen],
    }


def measure(checkpoint: str | None, device: str, n: int, tokens: int) -> dict[str, Any]:
    """Decode one candidate, then ``n`` together; each once to warm up and once by the clock, prefill included."""
    from dice_engine.decode.generation import generate
    from dice_engine.engine import Engine

    start = time.perf_counter()
    engine = Engine.load(checkpoint, device)
    loaded = time.perf_counter() - start
    hole = next(hole for hole in find_holes(ROWS, "rows.cu") if hole.name == "row_sum_kernel")
    decoded = decode(hole)
    request = core_request(hole.kind, decoded.prefix, decoded.core, decoded.suffix)
    prompt = build_prompt(request, engine.tokenizer, format=engine.format)
    batches = []
    for count in sorted({1, n}):
        # No stop ids: every run decodes the same number of tokens, whatever the model would rather say.
        run = partial(generate, engine.model, prompt, tokens, temperature=0.8, n=count, stop_ids=[])
        run()
        start = time.perf_counter()
        made = run()
        seconds = time.perf_counter() - start
        written = sum(len(reply) for reply in made.tokens)
        batches.append(
            {
                "n": count,
                "seconds": round(seconds, 4),
                "forwards": made.forward_count,
                "ms_per_forward": round(1000 * seconds / made.forward_count, 3),
                "tokens_per_second": round(written / seconds, 1),
                "tokens_per_forward": round(written / made.forward_count, 3),
            }
        )
    return {
        "checkpoint": str(engine.folder),
        "device": engine.device_name,
        "load_seconds": round(loaded, 3),
        "prompt_tokens": len(prompt),
        "batches": batches,
    }


if __name__ == "__main__":
    sys.exit(main())
