"""Which judgements runs on a cluster share, and which must be made anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dice_engine.verify.verdict import Verdict
from dice_training.pool import verdicts
from dice_training.pool.verdicts import Verdicts, entry, judgement, keys
from dice_training.pool.work import Judgement, Options, Share

ROW = {
    "kind": "kernel_body",
    "kernel": "scale",
    "prefix": "p",
    "suffix": "s",
    "reference": "r",
    "original": "o",
    "pytorch": "t",
    "class_name": "Model",
    "around": ["a", "b"],
}
OPTIONS = Options("cpu")


def _key(
    row: dict[str, Any] = ROW, options: Options = OPTIONS, device: str = "cpu", plain: bool = False
) -> str:
    return keys(Share(row, ("core",), plain=plain), options, device)["core"]


@pytest.mark.parametrize("name", ROW)
def test_a_judgement_depends_on_each_field_that_says_what_is_judged(name: str) -> None:
    assert _key({**ROW, name: "another"}) != _key()
    assert _key({field: value for field, value in ROW.items() if field != name}) != _key()


def test_a_judgement_depends_on_options_device_question_and_core() -> None:
    others = [
        _key(options=replace(OPTIONS, trusted=True)),
        _key(options=replace(OPTIONS, budget=1.0)),
        _key(device="NVIDIA H200"),
        _key(plain=True),
        keys(Share(ROW, ("another core",)), OPTIONS, "cpu")["another core"],
    ]

    assert len({_key(), *others}) == 1 + len(others)


def test_what_only_names_a_row_makes_no_difference() -> None:
    assert _key({**ROW, "id": "another", "family": "scale", "split": "test"}) == _key()


def test_each_core_has_a_key_of_its_own() -> None:
    assert len(set(keys(Share(ROW, ("one", "two", "three")), OPTIONS, "cpu").values())) == 3


@pytest.mark.parametrize("verdict", ["timeout", "crash", "infra_error"])
def test_what_a_busy_machine_may_be_to_blame_for_is_not_kept(verdict: Any) -> None:
    assert entry(Judgement(Verdict(verdict))) is None


@pytest.mark.parametrize("plain", [True, False, None])
def test_a_kept_judgement_comes_back_as_it_was(plain: bool | None) -> None:
    made = Judgement(Verdict("mismatch", rule="narrowing", reason="too few bits"), plain)
    kept = entry(made)

    assert kept is not None
    assert judgement(kept) == made


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "LIMIT", 2)
    store = Verdicts()
    store.put({"a": {"n": 1}, "b": {"n": 2}})
    assert store.count() == 2
    store.put({"c": {"n": 3}})

    assert store.count() == 2
    assert store.get(["a", "c", "b", "x"]) == [None, {"n": 3}, {"n": 2}, None]
