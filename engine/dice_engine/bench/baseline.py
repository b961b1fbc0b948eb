"""The usual way to judge a rewritten module, for comparison: a fresh process, torch's own ``load_inline``, CUDA events.

As the common benchmark harnesses do it: both texts are executed, five seeds are compared with one tolerance, and the
median of a hundred calls is taken. ``python -m dice_engine.bench.baseline REFERENCE CANDIDATE [--time]`` prints one
JSON object and needs nvcc, ninja and a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_SEEDS, _TOLERANCE = 5, 1e-2
_WARM_CALLS, _TIMED_CALLS = 3, 100


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dice_engine.bench.baseline", description=__doc__)
    parser.add_argument("reference", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--time", action="store_true", help="time both sides as well")
    options = parser.parse_args(argv)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dice-baseline-") as folder:
        # A folder of its own: torch's builder locks the shared one, and waits for ever after a killed build.
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        found = judge(
            options.reference.read_text(), options.candidate.read_text(), options.device, options.time
        )
    print(json.dumps({**found, "seconds": round(time.perf_counter() - begun, 3)}))
    return 0 if found["correct"] else 1


def judge(reference: str, candidate: str, device: str, timed: bool) -> dict[str, Any]:
    """Whether outputs agree under every seed, with the seconds of the candidate's build and the times in ms."""
    import torch

    known: dict[str, Any] = {}
    exec(compile(reference, "<reference>", "exec"), known)
    written: dict[str, Any] = {}
    begun = time.perf_counter()
    exec(compile(candidate, "<candidate>", "exec"), written)
    build_seconds = time.perf_counter() - begun

    def made(factory: Any) -> Any:
        torch.manual_seed(42)
        return factory(*known["get_init_inputs"]()).to(device)

    model, rewrite = made(known["Model"]), made(written["ModelNew"])

    def inputs(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [value.to(device) for value in known["get_inputs"]()]

    def agree(given: list[Any]) -> bool:
        wanted, got = model(*given), rewrite(*given)
        return wanted.shape == got.shape and torch.allclose(wanted, got, atol=_TOLERANCE, rtol=_TOLERANCE)

    with torch.no_grad():
        correct = all(agree(inputs(seed)) for seed in range(_SEEDS))
        sides = {"reference_ms": model, "candidate_ms": rewrite} if timed else {}
        times = {name: _median_ms(side, inputs(0)) for name, side in sides.items()}
    return {"correct": correct, "build_seconds": round(build_seconds, 3), **times}


def _median_ms(model: Any, inputs: list[Any]) -> float:
    import torch

    for _ in range(_WARM_CALLS):
        model(*inputs)
    spans = []
    for _ in range(_TIMED_CALLS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        spans.append(start.elapsed_time(end))
    return sorted(spans)[len(spans) // 2]


if __name__ == "__main__":
    sys.exit(main())
