"""A list of rows that were found correct: what it names is taken, what is new is added, another text is another row."""

from __future__ import annotations

import json
from functools import partial

from dice_engine.verify.verdict import Verdict
from dice_training.cuke import cli, verified
from dice_training.cuke.generate import sample
from dice_training.pool import work

SEED, COUNT = 3, 12
CORRECT = {"verdict": "correct_unmeasured", "reason": ""}


def _build(out, listed):
    return cli.main(
        ["build", "--out", str(out), "--count", str(COUNT), "--seed", str(SEED), "--verified", str(listed)]
    )


def test_a_build_without_a_verifier_keeps_what_the_list_names(tmp_path, capsys):
    listed, out = tmp_path / "verified.txt", tmp_path / "rows.jsonl"
    rows = [sample(SEED, index) for index in range(COUNT)]
    for row in rows[:5]:
        verified.note_verified({**row, "verdict": CORRECT}, listed)
    verified.note_verified({**rows[5], "verdict": {"verdict": "mismatch", "reason": ""}}, listed)
    before = listed.read_text()
    assert len(before.split()) == 5
    assert _build(out, listed) == 0
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in kept] == [row["id"] for row in rows[:5]]
    assert "'not verified': 7" in capsys.readouterr().out
    assert listed.read_text() == before, "what is known already is not noted again"


def test_another_text_is_another_row():
    row = sample(SEED, 0)
    assert verified.digest(row) == verified.digest({**row, "id": "9-9", "split": "test"})
    for field in ("core", "reference", "suffix"):
        assert verified.digest(row) != verified.digest({**row, field: row[field] + " "})


def test_what_is_no_list_is_one_clear_line(tmp_path, capsys):
    listed = tmp_path / "rows.txt"
    listed.write_text("some words of somebody's\n")
    assert _build(tmp_path / "rows.jsonl", listed) == 2
    assert "not a list of verified rows" in capsys.readouterr().err


def test_a_failure_of_the_verifier_costs_one_row(monkeypatch):
    def fail(*_, **__):
        raise NameError("kind")

    monkeypatch.setattr(work, "verify_row", fail)
    row = work.Making(partial(sample, SEED), (0,)).answer(None, 0)  # type: ignore[arg-type]
    assert row["verdict"]["verdict"] == Verdict("infra_error").verdict
    assert "NameError" in row["verdict"]["reason"]
