"""A few samples of every form pass the project's own verifier on the CPU."""

from __future__ import annotations

import pytest
from dice_engine.verify.session import VerifySession
from dice_training.cuke.generate import KIND_SHARE, sample
from dice_training.cuke.verify import verify_row


@pytest.fixture(scope="module")
def session():
    with VerifySession("cpu") as opened:
        yield opened


@pytest.mark.parametrize("kind", KIND_SHARE)
def test_samples_verify(session, kind):
    for index in range(4):
        row = sample(21, index, kind=kind, split="test")
        verdict = verify_row(session, row)
        assert verdict is not None and verdict.verdict == "correct_unmeasured", (row["id"], verdict)
