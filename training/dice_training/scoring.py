"""pass@1 of a checkpoint in the middle of its training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def pass_at_1(checkpoint: Path, file: Path, rows: int, device: Literal["cpu", "cuda"]) -> float:
    """Share of the first ``rows`` test rows of ``file`` whose greedy core is correct, by ``dice eval infill``."""
    from dice_training.evaluate.cli import cores
    from dice_training.evaluate.infill import evaluate

    summary = evaluate(
        file,
        checkpoint=checkpoint,
        device=device,
        n=1,
        limit=rows,
        seed=0,
        workers=cores(),
        out=None,
        report=lambda line: None,
    )
    return summary["all"]["pass@1"]
