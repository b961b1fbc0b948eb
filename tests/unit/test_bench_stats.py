"""The statistics of a comparison: coverage, false alarms, and what a broken clock may not do."""

from __future__ import annotations

import numpy as np
import pytest
from dice_engine.verify.bench import (
    RatioInterval,
    below_roofline,
    is_gain,
    ratio_interval,
    roofline_floor,
    schedule,
    settled,
)


def times(rng: np.random.Generator, median: float, count: int = 40, spread: float = 0.03) -> list[float]:
    """Times as GPUs give them: a narrow body, some slow outliers."""
    body = median * (1 + spread * rng.standard_normal(count))
    body[rng.random(count) < 0.05] *= 2
    return [float(t) for t in np.round(body, 6)]


def test_ratio_is_that_of_the_medians() -> None:
    found = ratio_interval([2.0, 2.0, 2.0, 9.0], [1.0, 1.0, 1.0, 1.0], seed=1)
    assert found.ratio == 2.0
    assert found.low <= 2.0 <= found.high


def test_same_seed_same_interval() -> None:
    rng = np.random.default_rng(3)
    left, right = times(rng, 1.0), times(rng, 0.9)
    assert ratio_interval(left, right, seed=7) == ratio_interval(left, right, seed=7)


def test_identical_kernels_are_rarely_a_gain() -> None:
    rng = np.random.default_rng(11)
    gains = sum(is_gain(ratio_interval(times(rng, 1.0), times(rng, 1.0), seed=i)) for i in range(100))
    assert gains <= 3


def test_five_percent_is_found() -> None:
    rng = np.random.default_rng(12)
    gains = sum(is_gain(ratio_interval(times(rng, 1.05), times(rng, 1.0), seed=i)) for i in range(50))
    assert gains >= 45


def test_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(13)
    covered = 0
    for i in range(100):
        found = ratio_interval(times(rng, 1.3), times(rng, 1.0), seed=i)
        covered += found.low <= 1.3 <= found.high
    assert covered >= 88


def turns(rng: np.random.Generator, median: float, spread: float) -> list[float]:
    """Twelve turns of five calls: each turn is off by its own amount, each process by a little for good."""
    process = 1 + 0.002 * rng.standard_normal()
    each = 1 + spread * rng.standard_normal((12, 1))
    calls = 1 + 0.01 * rng.standard_normal((12, 5))
    return [float(t) for t in (median * process * each * calls).ravel()]


@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_claims_hold_where_turns_differ(spread: float) -> None:
    """Identical kernels at most once in 30, a kernel that is 1.05 times faster in 8 of 10: as promised."""
    rng = np.random.default_rng(16)
    same = [ratio_interval(turns(rng, 1.0, spread), turns(rng, 1.0, spread), i, turn=5) for i in range(150)]
    faster = [ratio_interval(turns(rng, 1.05, spread), turns(rng, 1.0, spread), i, turn=5) for i in range(50)]
    assert sum(map(is_gain, same)) <= 5
    assert sum(map(is_gain, faster)) >= 40


def test_calls_that_share_a_turn_are_no_independent_witnesses() -> None:
    rng = np.random.default_rng(17)
    left, right = turns(rng, 1.0, 0.03), turns(rng, 1.0, 0.03)
    alone, whole = ratio_interval(left, right), ratio_interval(left, right, turn=5)
    assert whole.high - whole.low > 1.3 * (alone.high - alone.low)
    with pytest.raises(ValueError, match="whole turns"):
        ratio_interval(left, right, turn=7)


def test_shared_drift_does_not_widen_the_interval() -> None:
    """Clocks that sink during an alternating run slow both sides alike."""
    rng = np.random.default_rng(14)
    drift = np.linspace(1.0, 1.5, 60)
    left = list(drift * np.array(times(rng, 1.2, 60, 0.005)))
    right = list(drift * np.array(times(rng, 1.0, 60, 0.005)))
    found = ratio_interval(left, right)
    assert found.low > 1.1 and found.high < 1.3


def test_a_coarse_clock_gives_no_certainty() -> None:
    """Five ticks against four, from a true ratio of 1.0 that rounding split: the tick is in the interval."""
    found = ratio_interval([0.005, 0.005, 0.004, 0.005], [0.004, 0.005, 0.004, 0.004])
    assert not is_gain(found)


def test_different_counts_are_resampled_apart() -> None:
    found = ratio_interval([2.0, 2.1, 1.9, 2.0, 2.0], [1.0, 1.1, 0.9])
    assert found.low < 2.0 < found.high


@pytest.mark.parametrize(
    ("bad", "words"),
    [([1.0, 2.0], "at least 3"), ([1.0, 0.0, 1.0], "positive"), ([1.0, float("nan"), 1.0], "positive")],
)
def test_bad_times_are_refused(bad: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ratio_interval(bad, [1.0, 1.0, 1.0])


def test_a_gain_needs_the_whole_interval_and_a_margin() -> None:
    assert is_gain(RatioInterval(1.05, 1.01, 1.09))
    assert not is_gain(RatioInterval(1.05, 1.0, 1.09))
    assert not is_gain(RatioInterval(1.004, 1.003, 1.005))


def test_roofline() -> None:
    assert roofline_floor(4e9, 4e12) == pytest.approx(1.0)
    assert below_roofline([0.5, 0.5, 0.5], 4e9, 4e12)
    assert not below_roofline([1.0, 1.0, 1.0], 4e9, 4e12)
    assert not below_roofline([0.01, 0.01, 0.01], 4e7, 4e12, cache_bytes=6e7)


def test_schedule_is_balanced_pair_by_pair() -> None:
    order = schedule(200, seed=5)
    assert len(order) == 400 and order.count("reference") == 200
    assert all({order[i], order[i + 1]} == {"reference", "candidate"} for i in range(0, 400, 2))
    firsts = order[::2].count("reference")
    assert 60 <= firsts <= 140


def test_settled() -> None:
    assert not settled([1.0] * 9)
    assert settled([3.0, 2.0] + [1.0] * 10)
    assert not settled([2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1])
