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
from adversaries import CAUGHT, HONEST, KERNELS_CAUGHT, KERNELS_HONEST
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

    def judge(original: str, text: str) -> Verdict:
        session = free.get()
        try:
            if original is REFERENCE:
                return session.verify_module(original, text)
            return session.verify_kernel(original, text, "k")
        finally:
            free.put(session)

    with ThreadPoolExecutor(_SESSIONS) as pool:
        texts = {name: (REFERENCE, text) for name, (text, _, _) in CAUGHT.items()}
        texts |= {name: (REFERENCE, text) for name, text in HONEST.items()}
        texts |= {name: (original, text) for name, (original, text, _, _) in KERNELS_CAUGHT.items()}
        texts |= KERNELS_HONEST
        yield {name: pool.submit(judge, *pair) for name, pair in texts.items()}
        pool.shutdown(cancel_futures=True)
    for session in sessions:
        session.close()


@pytest.mark.parametrize("name", [*CAUGHT, *KERNELS_CAUGHT])
def test_caught(verdicts: dict[str, Future[Verdict]], name: str) -> None:
    verdict, rule = (CAUGHT[name] if name in CAUGHT else KERNELS_CAUGHT[name])[-2:]
    found = verdicts[name].result(timeout=300)
    assert found.verdict == verdict, found
    assert rule is None or found.rule == rule, found
    assert found.reason


@pytest.mark.parametrize("name", [*HONEST, *KERNELS_HONEST])
def test_honest(verdicts: dict[str, Future[Verdict]], name: str) -> None:
    found = verdicts[name].result(timeout=300)
    assert found.verdict == "correct_unmeasured", found
