"""The judge against harder adversaries, and its patience with honest code that looks or computes oddly."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.verify.session import VerifySession

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import REFERENCE
from hard_candidates import CAUGHT, HONEST, ILL_CONDITIONED, pair

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=5.0) as opened:
        yield opened


@pytest.mark.parametrize("name", CAUGHT)
def test_caught(session: VerifySession, name: str) -> None:
    text, verdict, rule = CAUGHT[name]
    found = session.verify_module(REFERENCE, text)
    assert (found.verdict, found.rule) == (verdict, rule), found


@pytest.mark.parametrize("name", HONEST)
def test_honest(session: VerifySession, name: str) -> None:
    found = session.verify_module(REFERENCE, HONEST[name])
    assert found.verdict == "correct_unmeasured", found


@pytest.mark.parametrize("name", ILL_CONDITIONED)
def test_rounding_is_no_fault(session: VerifySession, name: str) -> None:
    found = session.verify_module(*pair(name))
    assert found.verdict == "correct_unmeasured", found
