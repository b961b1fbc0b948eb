"""Adversaries by rule, each with its rule, and honest code that does nearly the same (CPU backend)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest
from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parents[1]))
from adversaries import CAUGHT, HONEST
from candidates import REFERENCE

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")
_SESSIONS = 2


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[Verdict]]]:
    """Every verdict, by two sessions at once: compilers are most of the time."""
    free: SimpleQueue[VerifySession] = SimpleQueue()
    sessions = [VerifySession("cpu", timeout=8.0, threads=1) for _ in range(_SESSIONS)]
    for session in sessions:
        free.put(session)

    def judge(text: str) -> Verdict:
        session = free.get()
        try:
            return session.verify_module(REFERENCE, text)
        finally:
            free.put(session)

    with ThreadPoolExecutor(_SESSIONS) as pool:
        texts = {**{name: text for name, (text, _, _) in CAUGHT.items()}, **HONEST}
        yield {name: pool.submit(judge, text) for name, text in texts.items()}
        pool.shutdown(cancel_futures=True)
    for session in sessions:
        session.close()


@pytest.mark.parametrize("name", CAUGHT)
def test_caught(verdicts: dict[str, Future[Verdict]], name: str) -> None:
    _, verdict, rule = CAUGHT[name]
    found = verdicts[name].result(timeout=300)
    assert found.verdict == verdict, found
    assert rule is None or found.rule == rule, found
    assert found.reason


@pytest.mark.parametrize("name", HONEST)
def test_honest(verdicts: dict[str, Future[Verdict]], name: str) -> None:
    found = verdicts[name].result(timeout=300)
    assert found.verdict == "correct_unmeasured", found
