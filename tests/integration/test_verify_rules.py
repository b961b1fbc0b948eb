"""Every rule of the judge catches its adversaries and leaves their honest twins alone (CPU backend)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.verify.session import VerifySession

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import CAUGHT, HONEST, REFERENCE

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=5.0) as opened:
        yield opened


@pytest.mark.parametrize("name", CAUGHT)
def test_caught(session: VerifySession, name: str) -> None:
    text, verdict, rule = CAUGHT[name]
    found = session.verify_module(REFERENCE, text)
    assert (found.verdict, found.rule) == (verdict, rule) or (rule is None and found.verdict == verdict), (
        found
    )
    assert found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize("name", HONEST)
def test_honest(session: VerifySession, name: str) -> None:
    found = session.verify_module(REFERENCE, HONEST[name])
    assert found.verdict == "correct_unmeasured", found
    assert found.trials >= 6
    assert found.max_rel_err is not None
    assert found.max_rel_err < 1e-5
