"""Is it faster? The statistics of a comparison, apart from any clock: numpy in, a judgement out."""

from __future__ import annotations

from collections.abc import Sequence
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
    reference_times: Sequence[float], candidate_times: Sequence[float], seed: int = 0
) -> RatioInterval:
    """Ratio of medians with a bootstrap interval; above 1 the candidate is faster.

    Of equally many times the i-th of both sides are resampled together, since neighbours in an alternating run share
    the clocks' state. Times that agree because the clock is coarse are spread over one tick of it, so that a handful
    of equal readings is no certainty. Raises ValueError for fewer than 3 times or times that are not positive.
    """
    reference, candidate = _times(reference_times), _times(candidate_times)
    rng = np.random.default_rng(seed)
    tick = _tick(np.concatenate([reference, candidate]))
    left = rng.integers(0, len(reference), (_RESAMPLES, len(reference)))
    paired = len(reference) == len(candidate)
    right = left if paired else rng.integers(0, len(candidate), (_RESAMPLES, len(candidate)))
    medians = [
        np.median(times[index] + rng.uniform(-0.5, 0.5, index.shape) * tick, axis=1)
        for times, index in ((reference, left), (candidate, right))
    ]
    ratios = medians[0] / np.maximum(medians[1], np.finfo(float).tiny)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    ratio = float(np.median(reference) / np.median(candidate))
    return RatioInterval(ratio, min(float(low), ratio), max(float(high), ratio))


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
