"""Do two devices give the same verdicts? Teacher rows, the tests' candidates, and candidates from files.

    PYTHONPATH=engine:training python tests/bench/compare_backends.py --rows 220 [--devices cpu cuda] [--seconds 80]
    python tests/bench/compare_backends.py --rows 0 --candidates more.jsonl

Lines of a file: name, reference, candidate, honest, and kernel where both are .cu texts. Nothing is timed. Prints each
disagreement, and each cheat that passes or honest program that does not; exit 1 when there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from dice_engine.verify.session import DeviceName, VerifySession
from dice_engine.verify.verdict import CORRECT, Verdict

sys.path.insert(0, str(Path(__file__).parents[1]))
_OURS = ("infra_error", "no_plan")


@dataclass(frozen=True)
class Task:
    """One thing to judge; ``honest`` is None where nobody knows."""

    name: str
    judge: Callable[[VerifySession], Verdict]
    honest: bool | None = None


def teacher_rows(count: int, seed: int) -> Iterator[Task]:
    from dice_training.cuke.generate import sample
    from dice_training.cuke.verify import verify_row

    for index in range(count):
        row = sample(seed, index)
        yield Task(row["id"], lambda session, row=row: verify_row(session, row), honest=True)


def test_candidates() -> Iterator[Task]:
    import adversaries
    import candidates
    import hard_candidates

    for source in (candidates, hard_candidates, adversaries):
        for name, (text, *_) in source.CAUGHT.items():
            yield _module(name, candidates.REFERENCE, text, False)
        for name, text in source.HONEST.items():
            yield _module(name, candidates.REFERENCE, text, True)
    for name, (original, text, *_) in adversaries.KERNELS_CAUGHT.items():
        yield _kernel(name, original, text, "k", False)
    for name, (original, text) in adversaries.KERNELS_HONEST.items():
        yield _kernel(name, original, text, "k", True)


def file_candidates(path: Path) -> Iterator[Task]:
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("kernel"):
            yield _kernel(
                entry["name"], entry["reference"], entry["candidate"], entry["kernel"], entry["honest"]
            )
        else:
            yield _module(entry["name"], entry["reference"], entry["candidate"], entry["honest"])


def _module(name: str, reference: str, text: str, honest: bool) -> Task:
    return Task(name, lambda session: session.verify_module(reference, text, measure=False), honest)


def _kernel(name: str, original: str, text: str, kernel: str, honest: bool) -> Task:
    return Task(name, lambda session: session.verify_kernel(original, text, kernel, measure=False), honest)


class Judges:
    """Sessions on one device that take tasks in turn, until the time is up."""

    def __init__(self, device: DeviceName, count: int, until: float):
        self.until = until
        self.sessions = [VerifySession(device, threads=1, timeout=10.0) for _ in range(count)]
        self._free: SimpleQueue[VerifySession] = SimpleQueue()
        for session in self.sessions:
            self._free.put(session)
        self.pool = ThreadPoolExecutor(count)

    def submit(self, task: Task) -> Future[Verdict | None]:
        return self.pool.submit(self._judge, task)

    def _judge(self, task: Task) -> Verdict | None:
        session = self._free.get()
        try:
            return task.judge(session) if time.monotonic() < self.until else None
        finally:
            self._free.put(session)

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)
        for session in self.sessions:
            session.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=220)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--tests", action="store_true", help="the candidates of the tests too")
    parser.add_argument("--candidates", type=Path, action="append", default=[])
    parser.add_argument("--devices", nargs=2, default=["cpu", "cuda"])
    parser.add_argument("--sessions", nargs=2, type=int, default=[10, 4])
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    tasks = list(teacher_rows(options.rows, options.seed))
    tasks += list(test_candidates()) if options.tests else []
    tasks += [task for path in options.candidates for task in file_candidates(path)]
    until = time.monotonic() + options.seconds
    judges = [
        Judges(device, count, until) for device, count in zip(options.devices, options.sessions, strict=True)
    ]
    try:
        futures = [[judge.submit(task) for judge in judges] for task in tasks]
        seen, bad = Counter[str](), 0
        for task, pair in zip(tasks, futures, strict=True):
            found = [future.result() for future in pair]
            if found[0] is None or found[1] is None:
                seen["not reached"] += 1
                continue
            said, counts = _compare(task, found[0], found[1])
            seen[said] += 1
            if counts:
                bad += 1
                words = " | ".join(
                    f"{device}: {verdict.verdict} {verdict.rule or ''} {verdict.reason[:160]}"
                    for device, verdict in zip(options.devices, found, strict=True)
                    if verdict is not None
                )
                print(f"{said}: {task.name}: {words}", flush=True)
    finally:
        for judge in judges:
            judge.close()
    print(f"{'FAIL' if bad else 'PASS'}: {len(tasks)} tasks, {dict(seen)}")
    return int(bad > 0)


def _compare(task: Task, first: Verdict, second: Verdict) -> tuple[str, bool]:
    """How the two verdicts stand to each other, and whether that is a fault."""
    passes = [verdict.verdict in CORRECT for verdict in (first, second)]
    if any(verdict.verdict in _OURS for verdict in (first, second)):
        return "no verdict", first.verdict != second.verdict
    if passes[0] != passes[1]:
        return "disagree", True
    if task.honest is not None and passes[0] != task.honest:
        return "honest refused" if task.honest else "cheat passed", True
    same = (first.verdict, first.rule) == (second.verdict, second.rule) or passes[0]
    return "agree" if same else "agree, another rule", False


if __name__ == "__main__":
    sys.exit(main())
