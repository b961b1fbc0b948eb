"""What usual inputs and sizes do not show is found all the same, and honest twins pass (CPU backend)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.verify.session import VerifySession

sys.path.insert(0, str(Path(__file__).parents[1]))
from overlooked import CAUGHT, HONEST, KERNELS_CAUGHT, KERNELS_HONEST

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=20.0, threads=1) as opened:
        yield opened


@pytest.mark.parametrize("name", KERNELS_CAUGHT)
def test_kernel_is_caught(session: VerifySession, name: str) -> None:
    original, candidate, verdict, rule = KERNELS_CAUGHT[name]
    found = session.verify_kernel(original, candidate, "k")
    assert (found.verdict, found.rule) == (verdict, rule), found


@pytest.mark.parametrize("name", KERNELS_HONEST)
def test_honest_kernel(session: VerifySession, name: str) -> None:
    found = session.verify_kernel(*KERNELS_HONEST[name], "k")
    assert found.verdict == "correct_unmeasured", found


@pytest.mark.parametrize("name", CAUGHT)
def test_module_is_caught(session: VerifySession, name: str) -> None:
    reference, candidate, verdict, rule = CAUGHT[name]
    found = session.verify_module(reference, candidate)
    assert (found.verdict, found.rule) == (verdict, rule), found


@pytest.mark.parametrize("name", HONEST)
def test_honest_module(session: VerifySession, name: str) -> None:
    found = session.verify_module(*HONEST[name])
    assert found.verdict == "correct_unmeasured", found
