"""What the recipes of the training README's commands read is made by a command before, or is the reader's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli

RECIPES = Path("training/recipes")
README = Path("training/README.md").read_text(encoding="utf-8")
TRAINED = re.findall(r"^    dice train (?:sft|rl) training/recipes/(\S+)\.toml", README, re.MULTILINE)
WRITTEN = set(re.findall(r"--out (runs/\S+)", README))
OWN = {"tasks.jsonl", "engine/dice_engine/checkpoints/nano"}


def _recipe(name: str) -> dict[str, Any]:
    return tomli.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TRAINED)
def test_what_a_recipe_reads_is_made_by_a_documented_command(name: str) -> None:
    made = {_recipe(other)["output"] for other in TRAINED} | WRITTEN | OWN
    recipe = _recipe(name)
    read = [recipe[key] for key in ("data", "init", "tokenizer") if key in recipe]
    read += [phase["data"] for phase in recipe.get("phase", [])]

    assert [place for place in read if place not in made] == []


def test_phases_that_write_whole_answers_read_pytorch_tasks_and_no_rows() -> None:
    data = {phase["kind"]: phase["data"] for phase in _recipe("rl-nano")["phase"]}

    assert data["infill"] in WRITTEN
    assert data["generate"] not in WRITTEN
