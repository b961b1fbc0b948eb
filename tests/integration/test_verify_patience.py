"""How long a candidate may run, where many are judged: as its reference does, not for ever."""

from __future__ import annotations

import platform
import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from dice_engine.verify import session as judge
from dice_engine.verify.session import VerifySession
from faults import ENDLESS, ORIGINAL, RIGHT

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++"),
    pytest.mark.skipif(platform.system() != "Linux", reason="the CPU backend needs Linux"),
]


def test_a_run_is_given_up_by_the_time_of_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_LEAST_RUN_SECONDS", 1.0)
    with VerifySession("cpu", timeout=60.0, patience=2.0, budget=0.0, threads=1) as session:
        assert session.verify_kernel(ORIGINAL, RIGHT + "//", "axpb").verdict == "correct_unmeasured"
        started = time.monotonic()
        assert session.verify_kernel(ORIGINAL, ENDLESS, "axpb").verdict == "timeout"
        assert time.monotonic() - started < 20


def test_the_limit_lies_between_some_seconds_and_the_timeout() -> None:
    with VerifySession("cpu", timeout=30.0, patience=50.0) as session:
        assert [session._run_limit(longest) for longest in (0.001, 0.2, 4.0)] == [5.0, 10.0, 30.0]
    with VerifySession("cpu", timeout=30.0) as session:
        assert session._run_limit(0.001) == 30.0
