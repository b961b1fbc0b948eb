"""What the trials of one candidate found, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dice_engine.verify.judge.reference import Case
from dice_engine.verify.judge.weights import TRAINED
from dice_engine.verify.verdict import BuildInfo
from dice_engine.verify.worker import Failed


@dataclass
class Findings:
    """What the trials of one candidate gave so far."""

    trials: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    build: BuildInfo = field(default_factory=BuildInfo)
    kept: dict[str, int] = field(default_factory=dict)
    launches: int = 0
    """Kernels that a checked run launched, at least."""


def deceptive(rule: str, reason: str) -> Failed:
    return Failed("deceptive", reason, rule)


def words(case: Case) -> str:
    """The inputs of a case, for a reason that begins with "on"."""
    if case.name == TRAINED:
        return "other weights, as training or load_state_dict leaves them,"
    return (
        f"inputs of seed {case.seed}"
        if case.name.startswith("seed")
        else f"{case.name.replace('_', '-')} inputs"
    )
