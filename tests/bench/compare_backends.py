"""Do two devices give the same verdicts? Teacher rows, the tests' candidates, and candidates from files.

    PYTHONPATH=engine:training python tests/bench/compare_backends.py --rows 220 [--devices cpu cuda] [--seconds 80]
    python tests/bench/compare_backends.py --rows 0 --candidates more.jsonl

Lines of a file: name, reference, candidate, honest, and kernel where both are .cu texts. Nothing is timed. Prints each
disagreement, and each cheat that passes or honest program that does not; exit 1 when there is one. With `--save FOLDER`
the verdicts of each device are kept there, and those already there are not judged again: two machines share the work.
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


Found = tuple[str, str | None, str]
"""Verdict, rule and reason."""


def _found(verdict: Verdict | None) -> Found | None:
    return verdict and (verdict.verdict, verdict.rule, verdict.reason[:160])


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
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"], help="one or two")
    parser.add_argument("--sessions", nargs="+", type=int, default=[10, 4])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    tasks = list(teacher_rows(options.rows, options.seed))
    tasks += list(test_candidates()) if options.tests else []
    tasks += [task for path in options.candidates for task in file_candidates(path)]
    until = time.monotonic() + options.seconds
    with ThreadPoolExecutor(len(options.devices)) as pool:
        running = [
            pool.submit(_all_verdicts, tasks, device, count, until, options.save)
            for device, count in zip(options.devices, options.sessions, strict=False)
        ]
        verdicts = [job.result() for job in running]
    seen, bad = Counter[str](), 0
    for task, found in zip(tasks, zip(*verdicts, strict=True), strict=True):
        reached = [one for one in found if one is not None]
        if len(reached) < len(found):
            seen["not reached"] += 1
            continue
        said, counts = _compare(task, reached[0], reached[-1])
        seen[said] += 1
        if counts:
            bad += 1
            words = " | ".join(
                f"{device}: {verdict} {rule or ''} {reason}"
                for device, (verdict, rule, reason) in zip(options.devices, reached, strict=True)
            )
            print(f"{said}: {task.name}: {words}", flush=True)
    print(f"{'FAIL' if bad else 'PASS'}: {len(tasks)} tasks, {dict(seen)}")
    return int(bad > 0)


def _all_verdicts(
    tasks: list[Task], device: DeviceName, sessions: int, until: float, folder: Path | None
) -> list[Found | None]:
    kept = folder / f"{device}.json" if folder else None
    known: dict[str, Found] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    missing = [task for task in tasks if task.name not in known]
    if missing:
        judges = Judges(device, sessions, until)
        try:
            futures = [judges.submit(task) for task in missing]
            for task, future in zip(missing, futures, strict=True):
                if (verdict := _found(future.result())) is not None:
                    known[task.name] = verdict
        finally:
            judges.close()
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(known))
    return [known.get(task.name) for task in tasks]


def _compare(task: Task, first: Found, second: Found) -> tuple[str, bool]:
    """How the two verdicts stand to each other, and whether that is a fault."""
    passes = [verdict in CORRECT for verdict, _, _ in (first, second)]
    if any(verdict in _OURS for verdict, _, _ in (first, second)):
        return "no verdict", first[0] != second[0]
    if passes[0] != passes[1]:
        return "disagree", True
    if task.honest is not None and passes[0] != task.honest:
        return "honest refused" if task.honest else "cheat passed", True
    return "agree" if first[:2] == second[:2] or passes[0] else "agree, another rule", False


if __name__ == "__main__":
    sys.exit(main())
