"""Is it faster? The statistics of a comparison, apart from any clock: numpy in, a judgement out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

CONFIDENCE = 0.95
LEAST_GAIN = 1.01
"""A median ratio below this is no gain, whatever its interval: identical kernels differ by up to half a percent
through where their code and buffers lie, and that difference repeats within a run."""

_RESAMPLES = 4000

Side = Literal["reference", "candidate"]


class RatioInterval(NamedTuple):
    """Reference time over candidate time: the median ratio and its 95 % interval."""

    ratio: float
    low: float
    high: float


def ratio_interval(
    reference_times: Sequence[float], candidate_times: Sequence[float], seed: int = 0, turn: int = 1
) -> RatioInterval:
    """Ratio of medians with a bootstrap interval; above 1 the candidate is faster.

    ``turn``: how many times in a row each side was called before it was the other's turn. Whole turns are resampled,
    since calls of one turn share what the switch between processes left behind, and so do turns of one round: of
    equally many, the i-th of both sides are taken together. Times that agree because the clock is coarse are spread
    over one tick of it, so that a handful of equal readings is no certainty.
    Raises ValueError for fewer than 3 times, times that are not positive, or broken turns.
    """
    reference, candidate = _times(reference_times), _times(candidate_times)
    if len(reference) % turn or len(candidate) % turn or min(len(reference), len(candidate)) < 2 * turn:
        raise ValueError(f"times that are no whole turns of {turn}, or only one")
    rng = np.random.default_rng(seed)
    tick = _tick(np.concatenate([reference, candidate]))
    turns = reference.reshape(-1, turn), candidate.reshape(-1, turn)
    left = rng.integers(0, len(turns[0]), (_RESAMPLES, len(turns[0])))
    paired = len(turns[0]) == len(turns[1])
    right = left if paired else rng.integers(0, len(turns[1]), (_RESAMPLES, len(turns[1])))
    medians = []
    for times, index in zip(turns, (left, right), strict=True):
        drawn = times[index].reshape(_RESAMPLES, -1)
        medians.append(np.median(drawn + rng.uniform(-0.5, 0.5, drawn.shape) * tick, axis=1))
    ratios = medians[0] / np.maximum(medians[1], np.finfo(float).tiny)
    tail = _tail(min(map(len, turns)))
    low, high = np.quantile(ratios, [tail, 1 - tail])
    ratio = float(np.median(reference) / np.median(candidate))
    return RatioInterval(ratio, min(float(low), ratio), max(float(high), ratio))


def _tail(count: int) -> float:
    """Share of the resamples to leave out on each side, for ``count`` turns.

    The expanded percentile interval (Hesterberg 2015, "What Teachers Should Know About the Bootstrap"): plain
    percentiles are as narrow as if the spread were known, and a dozen turns do not tell it that well.
    """
    normal, freedom = NormalDist(), count - 1
    z = normal.inv_cdf((1 + CONFIDENCE) / 2)
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return normal.cdf(-math.sqrt(count / freedom) * student)


def _times(values: Sequence[float]) -> np.ndarray:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or len(times) < 3:
        raise ValueError(f"a comparison needs at least 3 times a side, got {times.size}")
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("a time that is not a positive number: the clock failed")
    return times


def _tick(times: np.ndarray) -> float:
    """The clock's resolution as the times show it: their smallest difference, 0 when there is only one value."""
    steps = np.diff(np.unique(times))
    return float(steps.min()) if len(steps) else 0.0


def is_gain(interval: RatioInterval) -> bool:
    """Whether the candidate is surely faster: the whole interval above 1 and the ratio worth the name."""
    return interval.low > 1.0 and interval.ratio >= LEAST_GAIN


def schedule(pairs: int, seed: int = 0) -> list[Side]:
    """An order of ``pairs`` calls of each side: each pair in random order, so that neither side is always the first,
    warm or cool one."""
    first = np.random.default_rng(seed).integers(0, 2, pairs)
    order: list[Side] = []
    for reference_first in first:
        order.append("reference" if reference_first else "candidate")
        order.append("candidate" if reference_first else "reference")
    return order


def roofline_floor(bytes_moved: float, bandwidth: float) -> float:
    """The least milliseconds in which ``bytes_moved`` can cross memory at ``bandwidth`` bytes a second."""
    return bytes_moved / bandwidth * 1e3


def below_roofline(
    times: Sequence[float], bytes_moved: float, bandwidth: float, cache_bytes: float = 0
) -> bool:
    """Whether the median time is impossible for the bytes that had to move: a fault of the timing or a deceit.

    ``cache_bytes`` may still be in the L2 cache after the flush's own lines left it; 10 % is granted to a measured
    bandwidth that a kernel can beat.
    """
    must = max(0.0, bytes_moved - cache_bytes)
    return float(np.median(_times(times))) < 0.9 * roofline_floor(must, bandwidth)


def settled(times: Sequence[float], window: int = 5, share: float = 0.02) -> bool:
    """Whether warming up is over: the medians of the last two windows agree within ``share``."""
    if len(times) < 2 * window:
        return False
    before, after = np.median(times[-2 * window : -window]), np.median(times[-window:])
    return bool(abs(after - before) <= share * after)
