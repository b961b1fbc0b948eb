"""Many candidates judged by ``verify`` in warm workers: what scores, rewards, imports and data sets are made of.

A :class:`JudgePool` says what is asked; where it is answered is its subclass's business (``pool/``). Workers that die
or do not answer are replaced, and what they had gets ``infra_error``: our fault, not the candidate's. Candidates are
never trusted.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from dice_training.cuke.verify import Row
from dice_training.pool.work import Judgement, Make, Making, Options, Share, Work

__all__ = ["Case", "JudgePool", "Judgement", "Options", "Pending", "cores", "open_pool"]

LOCAL = "local"
_SHARE = 8
"""Distinct cores of one row that go to one worker, which then loads the reference once."""
_CHUNK = 4
"""Rows that a worker makes and checks at a time."""
_AHEAD = 4
"""Chunks in flight for each worker, so that none waits for the slowest."""


Pool = TypeVar("Pool", bound="JudgePool")


@dataclass(frozen=True)
class Case:
    """A row and the cores to try in the place of its core; equal cores are judged once."""

    row: Row
    cores: Sequence[str]


@dataclass(frozen=True)
class Pending:
    """A case that is being judged, as shares of its distinct cores."""

    case: Case
    jobs: list[tuple[Share, Future[list[Judgement]]]]

    def result(self) -> list[Judgement]:
        """A judgement for each core, when all are done."""
        known: dict[str, Judgement] = {}
        for share, job in self.jobs:
            known.update(zip(share.items, job.result(), strict=True))
        return [known[core] for core in self.case.cores]


def cores() -> int:
    """Cores that this process may use: in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class JudgePool(ABC):
    """Use as a context manager. ``plain`` also asks whether wrong candidates' outputs agree without any robust
    check."""

    def __init__(self, options: Options, plain: bool = False) -> None:
        self.options, self.plain = options, plain

    @abstractmethod
    def run(self, work: Work) -> Future[list[Any]]:
        """Have ``work`` done: an answer for each of its items. Never raises for a worker that was lost."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many pieces of work are done at a time, now."""

    @abstractmethod
    def close(self) -> None:
        """End every worker; what has no answer yet is cancelled or ``infra_error``."""

    def __enter__(self: Pool) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, case: Case) -> Pending:
        """Have a case judged (not timed) while the caller does something else."""
        return self._submit(case, list(dict.fromkeys(case.cores)), measure=False)

    def judge(self, cases: Sequence[Case], measure: bool = False) -> Iterator[tuple[int, list[Judgement]]]:
        """(index of the case, a judgement for each of its cores), each case as soon as it is done.

        With ``measure``, on a GPU, correct candidates are timed when all are judged.
        """
        judged = _as_done([self.submit(case) for case in cases])
        if not measure or self.options.device == "cpu":
            yield from judged
            return
        found = dict(judged)
        timed = [self._measure(cases[index], found[index]) for index in found]
        for number, times in _as_done(timed):
            index = list(found)[number]
            yield index, _with_times(cases[index], found[index], timed[number].case, times)

    def measure(self, cases: Sequence[Case], judged: Sequence[list[Judgement]]) -> list[list[Judgement]]:
        """``judged`` with times of the correct ones, on a GPU."""
        pending = [self._measure(case, found) for case, found in zip(cases, judged, strict=True)]
        return [
            _with_times(case, found, timed.case, timed.result())
            for case, found, timed in zip(cases, judged, pending, strict=True)
        ]

    def rows(
        self, make: Make, indices: range, stopped: Callable[[], bool], measure: bool = False
    ) -> Iterator[Row]:
        """The rows of ``indices`` with their verdicts (and times), in order, until ``stopped()``. After a stop, chunks
        that have begun are still given out."""
        chunks = (tuple(indices[i : i + _CHUNK]) for i in range(0, len(indices), _CHUNK))
        running: deque[Future[list[Row]]] = deque()
        while True:
            if stopped():
                chunks = iter(())
                for future in reversed(running):
                    future.cancel()
                running = deque(future for future in running if not future.cancelled())
            missing = _AHEAD * self.workers - len(running)
            running.extend(
                self.run(Making(make, chunk, measure=measure)) for chunk in islice(chunks, max(0, missing))
            )
            if not running:
                return
            yield from running.popleft().result()

    def _submit(self, case: Case, distinct: list[str], measure: bool) -> Pending:
        shares = [
            Share(case.row, tuple(distinct[start : start + _SHARE]), measure, self.plain)
            for start in range(0, len(distinct), _SHARE)
        ]
        return Pending(case, [(share, self.run(share)) for share in shares])

    def _measure(self, case: Case, judged: Sequence[Judgement]) -> Pending:
        good = [core for core, found in zip(case.cores, judged, strict=True) if found.correct]
        good = list(dict.fromkeys(good))
        return self._submit(Case(case.row, good), good, measure=True)


def _as_done(pending: Sequence[Pending]) -> Iterator[tuple[int, list[Judgement]]]:
    """(number, judgements) of each, in the order in which they are done."""
    owner = {job: number for number, one in enumerate(pending) for _, job in one.jobs}
    missing = [len(one.jobs) for one in pending]
    yield from ((number, []) for number, count in enumerate(missing) if not count)
    for job in as_completed(owner):
        missing[owner[job]] -= 1
        if not missing[owner[job]]:
            yield owner[job], pending[owner[job]].result()


def _with_times(
    case: Case, judged: Sequence[Judgement], timed: Case, times: Sequence[Judgement]
) -> list[Judgement]:
    known = dict(zip(timed.cores, times, strict=True))
    return [known.get(core, found) for core, found in zip(case.cores, judged, strict=True)]


def open_pool(
    place: str, options: Options, workers: int, *, plain: bool = False, deadline: float = 600.0
) -> JudgePool:
    """The pool at ``place``: ``local`` is ``workers`` processes of this machine; ``ray://host:port`` is a cluster that
    ``dice verify-pool`` started, ``ray`` the one that this machine belongs to. ``deadline``: seconds until a worker
    that gives no answer is taken for stuck. Raises PoolError where there is none."""
    if place == LOCAL:
        from dice_training.pool.local import LocalPool

        return LocalPool(options, workers, plain=plain, deadline=deadline)
    from dice_training.pool.cluster import RayPool

    return RayPool(place, options, plain=plain, deadline=deadline)
