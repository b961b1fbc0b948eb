"""pass@k and the summary of an evaluation."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from dice_engine.verify.verdict import Verdict
from dice_training.data import DataError
from dice_training.evaluate.cli import table
from dice_training.evaluate.infill import Judged, read_candidates, summarise
from dice_training.evaluate.scores import pass_at_k


@pytest.mark.parametrize(
    ("total", "correct", "k"), [(8, 3, 1), (8, 3, 4), (8, 0, 8), (8, 8, 1), (6, 5, 2), (4, 1, 4)]
)
def test_pass_at_k_is_the_share_of_draws_with_a_correct_one(total: int, correct: int, k: int) -> None:
    draws = list(itertools.combinations([True] * correct + [False] * (total - correct), k))
    assert pass_at_k(correct, total, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def judged(kind: str, core: str, cores: list[str], *verdicts: str) -> Judged:
    return Judged({"kind": kind, "core": core}, cores, [Verdict(v) for v in verdicts])  # type: ignore[arg-type]


def test_summary_counts_the_greedy_candidate_and_every_verdict() -> None:
    rows = [
        judged("module", "a", ["a", "b"], "correct_unmeasured", "mismatch"),
        judged("module", "a", ["b", "a"], "mismatch", "verified"),
        judged("kernel_body", "c", ["c", "c"], "no_gain", "no_gain"),
        judged("kernel_body", "c", ["d", "d"], "crash", "crash"),
    ]
    summary = summarise(rows, 2)
    assert summary["all"] == {"rows": 4, "pass@1": 0.5, "pass@2": 0.75, "exact@1": 0.5}
    assert summary["distinct"] == 1.5
    assert summary["module"]["pass@1"] == 0.5 and summary["kernel_body"]["pass@2"] == 0.5
    assert summary["verdicts"] == {
        "mismatch": 2,
        "no_gain": 2,
        "crash": 2,
        "correct_unmeasured": 1,
        "verified": 1,
    }
    assert "50.0%" in table(summary)


def test_earlier_candidates_are_taken_for_the_rows_they_belong_to(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text(json.dumps({"id": "1-7", "cores": ["a", "b", "c"], "verdicts": []}) + "\n")
    found = read_candidates([{"id": "1-6"}, {"id": "1-7"}], file, 2)
    assert [(item.row["id"], item.cores) for item in found] == [("1-7", ["a", "b"])]
    with pytest.raises(DataError, match="no candidates"):
        read_candidates([{"id": "1-6"}], file, 2)
    file.write_text('{"id": "1-7"}\n')
    with pytest.raises(DataError, match="not the --out"):
        read_candidates([{"id": "1-7"}], file, 2)
