"""Rows to samples: what a model is trained to write is what the engine reads the core from."""

from __future__ import annotations

from pathlib import Path

import pytest
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import parse_core
from dice_training.data import build_dataset, read_rows


@pytest.mark.parametrize("format", ["fim", "chat"])
def test_the_reply_of_each_row_gives_its_core_back(tiny_checkpoint: Path, format: str) -> None:
    rows = list(read_rows(Path("tests/data/handmade.jsonl")))
    made = build_dataset(
        rows, tiny_checkpoint, block_size=4, context=20_000, row_length=40_000, format=format
    )
    assert made.dropped == 0
    tokenizer = DiceTokenizer.load(tiny_checkpoint)
    for row, sample in zip(rows, made.samples, strict=True):
        reply = tokenizer.decode(sample.ids[sample.prompt_length :].tolist())
        core = parse_core(row["kind"], reply, format, row["suffix"])
        if (
            format == "chat" and row["kind"] == "module"
        ):  # it ends where the suffix's first line of code begins
            assert core.rstrip() == row["core"].rstrip(), row["id"]
        else:
            assert core == row["core"], row["id"]
        if format == "chat":
            begun = tokenizer.decode(sample.ids[: sample.prompt_length].tolist())
            assert row["program"] in begun + reply
        else:
            assert reply == row["core"]


def test_rows_too_long_for_context_or_row_are_counted(tiny_checkpoint: Path) -> None:
    rows = list(read_rows(Path("tests/data/handmade.jsonl")))
    for limits in ({"context": 900, "row_length": 40_000}, {"context": 20_000, "row_length": 1000}):
        made = build_dataset(rows, tiny_checkpoint, block_size=4, **limits)
        assert 0 < len(made.samples) < len(rows) and made.dropped == len(rows) - len(made.samples)
