"""Scores of an evaluation, computed by hand."""

from __future__ import annotations

import pytest
from dice_engine.verify.verdict import BuildInfo, Verdict
from dice_training.evaluate.failures import failure_class
from dice_training.evaluate.page import lines
from dice_training.evaluate.scores import Result, summarise


def timed(eager: float, compiled: float) -> Verdict:
    speedups = {"eager": eager, "torch.compile": compiled}
    return Verdict("verified", speedup=min(eager, compiled), speedups=speedups, device="H200")


RESULTS = [
    Result("a", [timed(2.0, 0.9), timed(4.0, 1.2)], [True, True]),
    Result("b", [timed(0.5, 0.25), Verdict("mismatch")], [True, False]),
    Result("c", [Verdict("deceptive", rule="torch_fallback"), timed(1.0, 1.0)], [True, True]),
    Result("d", [Verdict("build_error"), Verdict("build_error")], [False, False]),
]


def test_every_share_is_of_all_tasks() -> None:
    found = summarise(RESULTS, 2)
    assert found["tasks"] == 4 and found["device"] == "H200"
    assert found["pass@1"] == found["correct_robust"] == 0.5
    assert found["correct_unchecked"] == 0.75
    assert found["pass@2"] == 0.75
    first, best = found["speed"]["eager"]["first"], found["speed"]["eager"]["best"]
    assert first["fast_p"] == {"0.0": 0.5, "0.5": 0.25, "0.8": 0.25, "1.0": 0.25, "1.5": 0.25, "2.0": 0.0}
    assert first["geomean"] == pytest.approx(1.0) and first["timed"] == 2
    assert best["fast_p"]["2.0"] == 0.25 and best["fast_p"]["0.8"] == 0.5
    assert best["geomean"] == pytest.approx(2 ** (1 / 3), abs=1e-4)
    assert found["speed"]["torch.compile"]["first"]["fast_p"]["0.8"] == 0.25
    assert found["verdicts"] == {
        "verified": 4,
        "build_error": 2,
        "mismatch": 1,
        "deceptive:torch_fallback": 1,
    }
    text = "\n".join(lines(found))
    assert "fast_p against torch.compile" in text and "unchecked 75.0%" in text


def test_times_against_eager_alone_need_no_names() -> None:
    results = [Result("a", [Verdict("no_gain", speedup=0.9)], [True])]
    assert summarise(results, 1)["speed"]["eager"]["first"]["fast_p"]["0.8"] == 1.0


def test_nothing_timed_has_no_speed() -> None:
    found = summarise([Result("a", [Verdict("correct_unmeasured")], [True])], 1)
    assert found["speed"] == {} and "nothing was timed" in "\n".join(lines(found))


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict("verified"), None),
        (
            Verdict("build_error", reason="not valid Python: invalid syntax (line 3)"),
            "does not build: not Python",
        ),
        (
            Verdict("build_error", reason="kernel.cu:5:16: error: 'y' was not declared in this scope"),
            "does not build: unknown name",
        ),
        (
            Verdict("build_error", build=BuildInfo(log="error: expected ';' before '}' token")),
            "does not build: syntax",
        ),
        (Verdict("build_error"), "does not build: other"),
        (Verdict("mismatch", rule="race"), "wrong result: race"),
        (Verdict("mismatch", reason="on its inputs output has shape [2]"), "wrong result: shape or type"),
        (Verdict("mismatch", reason="on its inputs output is 3, not 4"), "wrong result: values"),
        (Verdict("crash", reason="forward: TypeError: two arguments"), "crash: TypeError"),
        (Verdict("crash", reason="its process ended: signal 11"), "crash: process ended"),
        (Verdict("deceptive", rule="no_launch"), "deceptive: no_launch"),
        (Verdict("timeout"), "timeout"),
    ],
)
def test_failure_classes(verdict: Verdict, expected: str | None) -> None:
    assert failure_class(verdict) == expected
