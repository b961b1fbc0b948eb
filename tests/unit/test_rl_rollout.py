"""Rollouts: a reply depends on its task, its seed and the weights of the moment, and on nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.model.weights import load_model
from dice_training.data import DataError
from dice_training.rl.recipe import Phase
from dice_training.rl.rollout import Rollout, Sampler
from dice_training.rl.tasks import Task, load_tasks

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks


def tasks(folder: Path, tokenizer: DiceTokenizer, context: int = 512) -> list[Task]:
    file = small_tasks.write(folder / "rows.jsonl", [small_tasks.kernel_row(n) for n in ("scale", "shift")])
    phase = Phase("infill", str(file), 1)
    return load_tasks(phase, tokenizer, format="fim", context=context, max_new_tokens=24)[0]


def groups(sampler: Sampler, asked: list[Task], seed: int) -> dict[str, list[Rollout]]:
    return {asked[number].id: found for number, found in sampler.sample(asked, 3, seed)}


def test_replies_depend_on_task_seed_and_weights(tmp_path: Path, tiny_checkpoint: Path) -> None:
    model, tokenizer = load_model(tiny_checkpoint), DiceTokenizer.load(tiny_checkpoint)
    sampler = Sampler(model, tokenizer, temperature=1.0, threshold=0.9)
    first, second = tasks(tmp_path, tokenizer)
    both = groups(sampler, [first, second], 100)
    assert both == groups(sampler, [first, second], 100)
    assert both[second.id] == groups(sampler, [second], 103)[second.id]
    assert both != groups(sampler, [first, second], 200)
    assert len({tuple(rollout.tokens) for rollout in both[first.id]}) == 3
    for rollout in both[first.id]:
        assert len(rollout.tokens) == len(rollout.step_map) <= 24
        assert rollout.complete == (rollout.tokens[-1] in tokenizer.stop_ids)
        assert rollout.core == tokenizer.decode(rollout.tokens)

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert groups(sampler, [first], 100)[first.id] == both[first.id]  # not yet
    sampler.sync(model)
    assert groups(sampler, [first], 100)[first.id] != both[first.id]


def test_stopping_to_iterate_leaves_the_decoder_empty(tmp_path: Path, tiny_checkpoint: Path) -> None:
    model, tokenizer = load_model(tiny_checkpoint), DiceTokenizer.load(tiny_checkpoint)
    sampler = Sampler(model, tokenizer, temperature=1.0, threshold=0.9)
    asked = tasks(tmp_path, tokenizer)
    stream = sampler.sample(asked, 3, 7)
    number, found = next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert groups(sampler, asked, 7)[asked[number].id] == found


def test_tasks_without_room_for_a_reply_are_left_out(tmp_path: Path, tiny_checkpoint: Path) -> None:
    tokenizer = DiceTokenizer.load(tiny_checkpoint)
    assert len(tasks(tmp_path, tokenizer)) == 2
    with pytest.raises(DataError, match="no task there fits the context of 64 tokens"):
        tasks(tmp_path, tokenizer, context=64)
