"""A few samples of every form, and all of those written by hand, pass the project's own verifier on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dice_engine.verify.session import VerifySession
from dice_training.cuke.generate import KIND_SHARE, sample
from dice_training.cuke.verify import verify_row

HANDMADE = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "handmade.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]


@pytest.mark.parametrize("kind", KIND_SHARE)
def test_samples_verify(session, kind):
    for index in range(4):
        row = sample(21, index, kind=kind, split="test")
        verdict = verify_row(session, row)
        assert verdict is not None and verdict.verdict == "correct_unmeasured", (row["id"], verdict)


@pytest.mark.parametrize("row", HANDMADE, ids=lambda row: row["id"])
def test_rows_written_by_hand_verify(session, row):
    assert row["prefix"] + row["core"] + row["suffix"] == row["program"]
    assert verify_row(session, row).verdict == "correct_unmeasured"


def test_trusted_rows_are_checked_for_what_they_compute():
    """Without the checks against cheats, right stays right and wrong stays wrong."""
    with VerifySession(
        "cpu", trusted_reference=True, trusted_candidate=True, threads=1, budget=0.0
    ) as trusting:
        for row in HANDMADE[::8]:
            assert verify_row(trusting, row).verdict == "correct_unmeasured"
            wrong = row["core"].replace("fmaxf", "fminf").replace("0.5f", "0.6f")
            assert verify_row(trusting, row, wrong).verdict == "mismatch"
