"""From verdicts to rewards and advantages. What is not the reply's fault has no reward: it leaves the group."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from dice_engine.verify.verdict import CORRECT, Verdict

SLOWEST, FASTEST = -1.0, 2.0
"""Bounds of log2(speedup) in the speed term."""


def ours(verdict: Verdict) -> bool:
    """Whether the machine or the task failed, not the reply: no reward can be given.

    A run that takes too long is the reply's fault; a build that does is not known to be.
    """
    if verdict.verdict == "timeout":
        return not verdict.build.backend
    return verdict.verdict in ("infra_error", "no_plan")


def reward(verdict: Verdict, speed: float = 0.0) -> float | None:
    """1 for a correct reply, plus ``speed`` * log2(speedup) where it was timed; 0 for a wrong one; None: excluded."""
    if ours(verdict):
        return None
    if verdict.verdict not in CORRECT:
        return 0.0
    if not speed or verdict.speedup is None:
        return 1.0
    return 1.0 + speed * min(FASTEST, max(SLOWEST, math.log2(verdict.speedup)))


def advantages(rewards: Sequence[float | None]) -> list[float | None] | None:
    """Each reward's z-score within its group (population deviation); excluded ones stay None.

    None where all are equal: such a group says nothing about what to do more or less of.
    """
    given = [value for value in rewards if value is not None]
    spread = statistics.pstdev(given) if len(given) > 1 else 0.0
    if spread < 1e-6:
        return None
    mean = statistics.fmean(given)
    return [None if value is None else (value - mean) / spread for value in rewards]
