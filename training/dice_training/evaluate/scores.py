"""Scores of an evaluation: pass@k, correctness with and without the robust check, fast_p, speedups, what went wrong."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dice_engine.verify.verdict import CORRECT, Verdict

from dice_training.evaluate.failures import failure_class

FAST_P = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)


def pass_at_k(correct: int, total: int, k: int) -> float:
    """Unbiased estimate of the chance that k draws hold a correct one (arXiv 2107.03374, eq. 1)."""
    if total - correct < k:
        return 1.0
    return 1.0 - math.comb(total - correct, k) / math.comb(total, k)


@dataclass(frozen=True)
class Result:
    """One task: its candidates' verdicts, the greedy one first, and whether their outputs agree unchecked."""

    id: str
    verdicts: Sequence[Verdict]
    plain: Sequence[bool]

    @property
    def correct(self) -> list[bool]:
        return [verdict.verdict in CORRECT for verdict in self.verdicts]

    def speedup(self, candidate: int, baseline: str) -> float | None:
        """Of a correct candidate that was timed against ``baseline``, else None."""
        verdict = self.verdicts[candidate]
        if verdict.verdict not in CORRECT:
            return None
        if verdict.speedups:
            return verdict.speedups.get(baseline)
        return verdict.speedup if baseline == "eager" else None

    def fastest(self, baseline: str) -> float | None:
        found = [self.speedup(number, baseline) for number in range(len(self.verdicts))]
        return max((s for s in found if s is not None), default=None)


def summarise(results: Sequence[Result], n: int) -> dict[str, Any]:
    """Shares are of all tasks. ``pass@1`` and ``first`` are about the greedy candidate, ``pass@k`` for k > 1 is the
    unbiased estimate over all n, ``best`` is the fastest correct of n."""
    passed: dict[str, float] = {"pass@1": mean(result.correct[0] for result in results)}
    ks = [k for k in (2, 4, 8, 16, 32, 64) if k <= n]
    if n > 1 and n not in ks:
        ks.append(n)
    for k in ks:
        passed[f"pass@{k}"] = mean(pass_at_k(sum(r.correct), len(r.correct), k) for r in results)
    verdicts = [verdict for result in results for verdict in result.verdicts]
    failures = Counter(found for verdict in verdicts if (found := failure_class(verdict)) is not None)
    return {
        "tasks": len(results),
        "n": n,
        **passed,
        "correct_robust": passed["pass@1"],
        "correct_unchecked": mean(result.plain[0] for result in results),
        "speed": {name: _speed(results, name, n) for name in _baselines(results)},
        "verdicts": dict(Counter(label(verdict) for verdict in verdicts).most_common()),
        "failures": dict(failures.most_common()),
        "device": next((verdict.device for verdict in verdicts if verdict.device), ""),
    }


def _baselines(results: Iterable[Result]) -> list[str]:
    found: dict[str, None] = {}
    for result in results:
        for verdict in result.verdicts:
            if verdict.speedup is not None:
                found.update(dict.fromkeys(verdict.speedups or ("eager",)))
    return list(found)


def _speed(results: Sequence[Result], baseline: str, n: int) -> dict[str, Any]:
    first = [result.speedup(0, baseline) for result in results]
    found = {"first": _fast(first)}
    if n > 1:
        found["best"] = _fast([result.fastest(baseline) for result in results])
    return found


def _fast(speedups: Sequence[float | None]) -> dict[str, Any]:
    """fast_p: the share of all tasks whose candidate is correct and more than p times as fast."""
    timed = [speedup for speedup in speedups if speedup is not None]
    return {
        "fast_p": {str(p): mean(s is not None and s > p for s in speedups) for p in FAST_P},
        "geomean": round(statistics.geometric_mean(timed), 4) if timed else None,
        "timed": len(timed),
    }


def label(verdict: Verdict) -> str:
    return f"{verdict.verdict}:{verdict.rule}" if verdict.rule else verdict.verdict


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 4) if numbers else 0.0
