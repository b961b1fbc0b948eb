"""``dice generate``: decode candidates and print them; nothing is compiled, checked or run."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.arguments import Arguments, whole
from dice_engine.prompts import CoreRequest, PromptError, core_request
from dice_engine.runtime import share_cores

if TYPE_CHECKING:
    from dice_engine.engine import Candidate

STRATEGIES = ("sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded")
KINDS = ("kernel_body", "load_inline_core", "module", "selection")


class InputError(Exception):
    """The input file is not what it should be; one line."""


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        request = read_infill(options.infill) if options.infill else read_reference(options.reference)
        request = replace(request, begin=options.begin)
        # After the input is known to be good: torch takes seconds to import.
        share_cores()
        from dice_engine.decode.jobs import DecodeError
        from dice_engine.engine import Engine
        from dice_engine.model.config import CheckpointError

        try:
            engine = Engine.load(options.checkpoint, options.device)
            candidates = engine.candidates(
                request,
                options.n,
                options.seed,
                temperature=options.temperature,
                max_new_tokens=options.max_new_tokens,
                strategy=options.strategy,
                steps=options.steps,
                threshold=options.threshold,
                gamma=options.gamma,
                top_k=options.top_k,
                top_p=options.top_p,
                stop=options.stop,
            )
        except (CheckpointError, DecodeError, ValueError) as error:
            raise InputError(str(error)) from None
    except (InputError, PromptError) as error:
        print(f"dice generate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(
            json.dumps(
                {"device": engine.device_name, "candidates": [_report(request, c) for c in candidates]}
            )
        )
    else:
        for candidate in candidates:
            state = "" if candidate.complete else ", cut at the length limit"
            print(f"--- candidate {candidate.index}: {len(candidate.tokens)} tokens{state}")
            print(request.begin + candidate.core)
    return 0 if any(c.complete for c in candidates) else 1


def read_infill(path: Path) -> CoreRequest:
    """A request from JSON ``{kind?, prefix, suffix, reference? | core? | middle? | pytorch_code?}``."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path} is not a JSON object")
    for name in ("prefix", "suffix"):
        if not isinstance(data.get(name), str):
            raise InputError(f'{path} has no text "{name}"')
    known = {k: data.get(k) for k in ("kind", "reference", "core", "middle", "pytorch_code")}
    bad = [k for k, v in known.items() if v is not None and not isinstance(v, str)]
    if bad:
        raise InputError(f'{path}: "{bad[0]}" is not text')
    kind: Any = known["kind"] or ("load_inline_core" if known["pytorch_code"] else "kernel_body")
    if kind not in KINDS:
        raise InputError(f'{path}: "kind" is {kind!r}, it can be {", ".join(KINDS)}')
    if known["reference"] is not None:
        return CoreRequest(kind, data["prefix"], data["suffix"], known["reference"])
    core = known["core"] if known["core"] is not None else known["middle"]
    if core is None and not known["pytorch_code"] and kind != "module":
        raise InputError(
            f'{path} says nothing about what to write: give "reference", "core" or "pytorch_code"'
        )
    return core_request(kind, data["prefix"], core or "", data["suffix"], known["pytorch_code"])


def read_reference(path: Path) -> CoreRequest:
    """The request for the first module of a PyTorch file (with ``get_inputs``), to be followed by a faster one."""
    from dice_engine.source.holes import decode, find_holes

    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start})") from None
    hole = next((hole for hole in find_holes(text, str(path)) if hole.kind == "module"), None)
    if hole is None:
        raise InputError(f"{path} has no PyTorch module class with get_inputs")
    decoded = decode(hole)
    return core_request("module", decoded.prefix, decoded.core, decoded.suffix)


def _report(request: CoreRequest, candidate: Candidate) -> dict[str, Any]:
    return {
        "index": candidate.index,
        "core": request.begin + candidate.core,
        "program": request.prefix + request.begin + candidate.core + request.suffix,
        "complete": candidate.complete,
        "tokens": candidate.tokens,
        "step_map": candidate.step_map,
        "seconds": round(candidate.seconds, 3),
    }


def _parser() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="dice generate",
        description="Decode candidates for a gap in a program. Nothing is compiled or run.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--infill", type=Path, metavar="FILE.json", help="{kind, prefix, suffix, reference}")
    source.add_argument("--reference", type=Path, metavar="FILE.py", help="a PyTorch module with get_inputs")
    parser.add_argument("-n", type=whole(1), default=8, metavar="N", help="how many candidates (8)")
    parser.add_argument(
        "--seed", type=int, default=0, help="with --temperature candidate i draws with seed + i (0)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        help="draw all candidates but the greedy first at it (they leave the first where it was least sure)",
    )
    parser.add_argument("--max-new-tokens", type=whole(1), default=1536, metavar="N", help="at most (1536)")
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="low_confidence_dynamic", help="of unmasking"
    )
    parser.add_argument("--steps", type=whole(1), metavar="N", help="that a block is spread over (its size)")
    parser.add_argument(
        "--threshold", type=float, default=0.9, help="low_confidence_dynamic: unmask all that is surer (0.9)"
    )
    parser.add_argument(
        "--gamma", type=float, default=0.3, help="entropy_bounded: nats a step may risk (0.3)"
    )
    parser.add_argument(
        "--top-k", type=whole(0), default=0, metavar="N", help="draw from the N likeliest (0: all)"
    )
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from this much of the mass (1.0)")
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before TEXT; can be given several times",
    )
    parser.add_argument("--begin", default="", metavar="TEXT", help="what every core begins with")
    parser.add_argument("--checkpoint", metavar="PATH", help="folder or Hugging Face id (the embedded model)")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
