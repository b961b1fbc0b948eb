"""Renamed samples stay the same sample: only own names change, everywhere, and stay predictable from the prompt."""

from __future__ import annotations

import random
import re

import pytest
from dice_training.cuke.generate import sample
from dice_training.cuke.rename import PARTS, own_names, rename


@pytest.mark.parametrize("index", range(60))
def test_renaming_is_a_one_to_one_map_of_own_names(index: int) -> None:
    row = sample(11, index)
    renamed = rename(row, random.Random(index))
    assert renamed["prefix"] + renamed["core"] + renamed["suffix"] == renamed["program"]
    before = re.findall(r"\w+|\W", "\0".join(row[part] for part in PARTS))
    after = re.findall(r"\w+|\W", "\0".join(renamed[part] for part in PARTS))
    assert len(before) == len(after)
    changed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    assert set(changed) <= set(own_names("\n".join(row[part] for part in PARTS)))
    assert len(set(changed.values())) == len(changed)
    if "kernel" in row:
        assert re.search(rf"\b{renamed['kernel']}\b", renamed["program"])


@pytest.mark.parametrize("index", range(60))
def test_new_names_in_the_core_stand_in_the_prompt_or_follow_one_that_does(index: int) -> None:
    row = sample(12, index)
    renamed = rename(row, random.Random(index))
    prompt = set(re.findall(r"\w+", "\n".join(renamed[part] for part in PARTS if part != "core")))
    new = set(re.findall(r"\w+", renamed["core"])) - set(re.findall(r"\w+", row["core"]))
    assert all(name in prompt or any(name.startswith(seen + "_") for seen in prompt) for name in new)
