"""Many candidates judged by ``verify`` in warm worker processes: what scores, rewards and imports are made of.

Each worker keeps a session of its own. A worker that dies, or that does not answer in time, is replaced, and the
candidate it had gets ``infra_error``: our fault, not the candidate's. Candidates are never trusted here.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from dice_engine.verify.verdict import CORRECT, Verdict

from dice_training.cuke.verify import Row, same_outputs, use_gpu, verify_row

if TYPE_CHECKING:
    from dice_engine.verify.session import Baseline, DeviceName

_SHARE = 8
"""Distinct cores of one row that go to one worker, which then loads the reference once."""
_END_SECONDS = 5.0


@dataclass(frozen=True)
class Case:
    """A row and the cores to try in the place of its core; equal cores are judged once."""

    row: Row
    cores: Sequence[str]


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    plain: bool | None = None
    """Whether the outputs agree when nothing else is checked; None where that was not asked."""

    @property
    def correct(self) -> bool:
        return self.verdict.verdict in CORRECT


@dataclass(frozen=True)
class Pending:
    """A case that is being judged, as shares of its distinct cores."""

    case: Case
    jobs: list[tuple[list[str], Future[list[Judgement]]]]

    def result(self) -> list[Judgement]:
        """A judgement for each core, when all are done."""
        known: dict[str, Judgement] = {}
        for share, job in self.jobs:
            known.update(zip(share, job.result(), strict=True))
        return [known[core] for core in self.case.cores]


@dataclass(frozen=True)
class _Question:
    row: Row
    core: str
    measure: bool
    plain: bool


def cores() -> int:
    """Cores that this process may use: in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class JudgePool:
    """``workers`` processes that judge on ``device``. Use as a context manager.

    ``plain`` also asks whether wrong candidates' outputs agree without any robust check. Seconds: ``budget``,
    ``timeout`` and ``build_timeout`` are the session's, ``deadline`` is for a worker that is itself stuck.
    """

    def __init__(
        self,
        device: DeviceName,
        workers: int,
        *,
        baseline: Baseline = "eager",
        budget: float = 15.0,
        plain: bool = False,
        timeout: float = 30.0,
        build_timeout: float = 180.0,
        deadline: float = 600.0,
    ) -> None:
        self.device, self.plain, self.deadline = device, plain, deadline
        self._options = {
            "device": device,
            "threads": max(1, cores() // workers),
            "baseline": baseline,
            "budget": budget,
            "timeout": timeout,
            "build_timeout": build_timeout,
        }
        self._closing = False
        self._idle: queue.Queue[_Child] = queue.Queue()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="judge")
        self._children = {number: _Child(number, self._options) for number in range(workers)}
        for child in self._children.values():
            self._idle.put(child)

    def __enter__(self) -> JudgePool:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children.values():
            child.ask_to_end()
        self._threads.shutdown()  # their questions have no answer any more
        for child in self._children.values():
            child.end()

    def submit(self, case: Case) -> Pending:
        """Have a case judged (not timed) while the caller does something else."""
        distinct = list(dict.fromkeys(case.cores))
        shares = [distinct[start : start + _SHARE] for start in range(0, len(distinct), _SHARE)]
        jobs = [(share, self._threads.submit(self._judge, case.row, share, False)) for share in shares]
        return Pending(case, jobs)

    def judge(self, cases: Sequence[Case], measure: bool = False) -> Iterator[tuple[int, list[Judgement]]]:
        """(index of the case, a judgement for each of its cores), each case as soon as it is done.

        With ``measure``, on a GPU, correct candidates are then timed, see :meth:`measure`.
        """
        measure = measure and self.device != "cpu"
        pending = [self.submit(case) for case in cases]
        cases_of = {job: index for index, case in enumerate(pending) for _, job in case.jobs}
        missing = [len(case.jobs) for case in pending]
        finished = [index for index, count in enumerate(missing) if not count]
        for job in as_completed(cases_of):
            missing[cases_of[job]] -= 1
            if not missing[cases_of[job]]:
                finished.append(cases_of[job])
            if not measure:
                yield from ((index, pending[index].result()) for index in finished)
                finished.clear()
        for index in finished:
            found = pending[index].result()
            yield index, self.measure(cases[index], found) if measure else found

    def measure(self, case: Case, judged: Sequence[Judgement]) -> list[Judgement]:
        """``judged`` with times of the correct ones, on a GPU. They are taken one after another, and nothing may be
        pending: a clock needs the GPU to itself."""
        known = dict(zip(case.cores, judged, strict=True))
        good = [core for core, found in known.items() if found.correct]
        known.update(zip(good, self._judge(case.row, good, True), strict=True))
        return [known[core] for core in case.cores]

    def _judge(self, row: Row, cores: list[str], measure: bool) -> list[Judgement]:
        if not cores:
            return []
        child = self._idle.get()
        try:
            judged = []
            for core in cores:
                answer = child.ask(_Question(row, core, measure, self.plain), self.deadline)
                if answer is None:
                    answer = Judgement(Verdict("infra_error", reason="a verify worker died or got stuck"))
                    child = self._replaced(child)
                judged.append(answer)
            return judged
        finally:
            self._idle.put(child)

    def _replaced(self, child: _Child) -> _Child:
        if self._closing:
            return child
        child.end()
        self._children[child.number] = _Child(child.number, self._options)
        return self._children[child.number]


class _Child:
    """One worker process and our end of its pipe."""

    def __init__(self, number: int, options: dict[str, Any]) -> None:
        self.number = number
        # Forks of a process whose torch has threads hang, so workers start anew.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, number, options), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, question: _Question, deadline: float) -> Judgement | None:
        """None: it died or gave no answer in time."""
        try:
            self._pipe.send(question)
            return self._pipe.recv() if self._pipe.poll(deadline) else None
        except (EOFError, OSError):
            return None

    def ask_to_end(self) -> None:
        """SIGTERM, so that the session can end its own children."""
        self._process.terminate()

    def end(self) -> None:
        self.ask_to_end()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _work(pipe: Connection, number: int, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    signal.signal(signal.SIGTERM, _end)
    import torch
    from dice_engine.verify.session import VerifySession

    torch.set_num_threads(options["threads"])
    if options["device"] != "cpu":
        use_gpu(number)
    with (
        contextlib.suppress(EOFError, BrokenPipeError),
        VerifySession(**options, isolation="warm", trusted_reference=True) as session,
    ):
        while True:
            question: _Question = pipe.recv()
            pipe.send(_answer(session, question))


def _end(*_: object) -> None:
    raise SystemExit(0)  # through the session's exit, which ends its own children


def _answer(session: Any, question: _Question) -> Judgement:
    row, core = question.row, question.core
    try:
        verdict = verify_row(session, row, core, measure=question.measure)
        plain = None
        if question.plain:
            plain = verdict.verdict in CORRECT or (
                verdict.verdict in ("mismatch", "deceptive") and same_outputs(session, row, core)
            )
        return Judgement(verdict, plain)
    except Exception as error:  # the verifier's own failure is never the candidate's
        return Judgement(
            Verdict("infra_error", reason=f"the verifier failed: {type(error).__name__}: {error}")
        )
