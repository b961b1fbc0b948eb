"""The settings' schema: what is taken, what is refused, and what is generated from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dice_ls.settings import Settings, markdown, schema

ROOT = Path(__file__).parents[2]


def test_values_are_taken_plain_or_under_dice() -> None:
    assert Settings.from_client({"candidates": 3})[0].candidates == 3
    settings, problems = Settings.from_client({"dice": {"candidates": 3, "device": "cpu", "trusted": True}})
    assert (settings.candidates, settings.device, settings.trusted, problems) == (3, "cpu", True, [])
    assert Settings.from_client(None) == (Settings(), [])


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("candidates", "8", "a number from 1 to 64"),
        ("candidates", True, "a number from 1 to 64"),
        ("candidates", 0, "a number from 1 to 64"),
        ("device", "gpu", "one of auto, cuda, cpu"),
        ("device", ["cpu"], "one of auto, cuda, cpu"),
        ("codeLens", 1, "true or false"),
        ("checkpoint", "models/mine", "a full path"),
        ("ghostText", {}, "one of automatic, onRequest, off"),
    ],
)
def test_a_wrong_value_costs_that_key_alone(key: str, value: object, wanted: str) -> None:
    settings, problems = Settings.from_client({key: value, "diagnosticsDelayMs": 7})
    assert settings == Settings(diagnosticsDelayMs=7)
    assert len(problems) == 1 and f"{key!r} must be {wanted}" in problems[0]


def test_unknown_keys_are_named_and_ignored() -> None:
    settings, problems = Settings.from_client({"candidats": 3, "trace": {"server": "off"}})
    assert settings == Settings()
    assert len(problems) == 1 and "unknown setting 'candidats'" in problems[0] and "candidates" in problems[0]


def test_a_changed_configuration_cannot_touch_user_scope() -> None:
    start, _ = Settings.from_client({"checkpoint": "/models/mine", "candidates": 4})
    settings, problems = start.reloaded(
        {"checkpoint": "/workspace/evil", "trusted": True, "codeLens": False}, start
    )
    assert settings == Settings(checkpoint="/models/mine", candidates=4, codeLens=False)
    assert len(problems) == 2 and all("user scope" in problem for problem in problems)
    assert start.reloaded({"checkpoint": "/models/mine"}, start) == (start, [])


def test_what_a_changed_configuration_leaves_out_is_as_at_the_start() -> None:
    start, _ = Settings.from_client({"candidates": 4})
    now, _ = start.reloaded({"candidates": 9, "codeLens": False}, start)
    assert (now.candidates, now.codeLens) == (9, False)
    now, _ = now.reloaded({"codeLens": False, "candidates": None}, start)
    assert (now.candidates, now.codeLens) == (4, False)
    now, problems = now.reloaded({"codeLens": "no"}, start)
    assert not now.codeLens and len(problems) == 1, "a wrong value leaves the value in force"
    assert now.reloaded([], start) == (
        now,
        ["the configuration `dice` must be an object; nothing is changed"],
    )


def test_the_schema_describes_every_setting() -> None:
    described = {one["key"]: one for one in schema()}
    assert set(described) == {f"dice.{key}" for key in Settings.__dataclass_fields__}
    assert described["dice.device"]["enum"] == ["auto", "cuda", "cpu"]
    assert described["dice.candidates"] | {"description": ""} == {
        "key": "dice.candidates",
        "type": "integer",
        "default": 8,
        "scope": "workspace",
        "side": "server",
        "description": "",
        "minimum": 1,
        "maximum": 64,
    }
    paths = [one for one in described.values() if one["key"] in ("dice.python", "dice.checkpoint")]
    assert all(one["scope"] == "user" and one["type"] == ["string", "null"] for one in paths)
    assert all(one["description"].endswith(".") for one in described.values())


def test_the_schema_and_the_commands_are_printed_for_editors() -> None:
    command = [sys.executable, "-m", "dice_ls.settings", "--json"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert printed["settings"] == schema()
    assert {"command": "dice.findFaster"}.items() <= printed["commands"][0].items()


def test_the_documentation_is_the_schema() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == markdown(), "python -m dice_ls.settings --markdown > docs/settings.md"
