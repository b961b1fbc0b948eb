"""The training loop: it learns, and its gradient does not depend on how a step is cut."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_training.objective import Batch, Corrupted
from dice_training.packing import Rows, Sample, make_sample, pack
from dice_training.recipe import RecipeError, SftRecipe, load_sft_recipe
from dice_training.sft import Trainer, save_tokenizer_copy, schedule

END = 0


def tiny_model(seed: int = 0) -> SdarModel:
    config = SdarConfig(
        vocab_size=24,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
        mask_token_id=1,
        rope_theta=1e4,
    )
    model = SdarModel(config)
    model.reset_parameters(torch.Generator().manual_seed(seed))
    return model


def copies(count: int) -> list[Sample]:
    """The answer is the prompt again: learnable only by looking at it."""
    rng = random.Random(0)
    words = [[rng.randrange(2, 24) for _ in range(3)] for _ in range(count)]
    return [make_sample(word, [*word, END], END, 4) for word in words]


def recipe(tmp_path: Path, **changes: object) -> SftRecipe:
    values = {
        "row_length": 64,
        "batch_rows": 4,
        "steps": 150,
        "learning_rate": 5e-3,
        "noise": "block",
        "ema": 0.9,
    }
    return SftRecipe(data="", output=str(tmp_path), **{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_learns_to_copy(tmp_path: Path, optimizer: str) -> None:
    trainer = Trainer(recipe(tmp_path, optimizer=optimizer), tiny_model(), lambda line: None, tmp_path)
    samples = copies(400)
    before = trainer.evaluate(samples[:64])
    trainer.run(samples, [])
    after = trainer.evaluate(samples[:64])
    assert after < before / 2


@pytest.mark.parametrize("accumulate", [2, 4])
def test_the_gradient_does_not_depend_on_accumulation(
    tmp_path: Path, accumulate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide_all(batch: Batch, **_: object) -> Corrupted:
        # Random draws differ between one big batch and several small ones; without them, everything is equal.
        return Corrupted(torch.where(batch.answer, 1, batch.ids), batch.answer.clone(), batch.answer.float())

    monkeypatch.setattr("dice_training.sft.corrupt", hide_all)
    rows = pack(copies(60), 64, 4)
    size = len(rows) // accumulate
    rows = Rows(*(array[: size * accumulate] for array in vars(rows).values()))

    def gradient(batch_rows: int) -> torch.Tensor:
        trainer = Trainer(recipe(tmp_path, batch_rows=batch_rows), tiny_model(), lambda line: None, tmp_path)
        for start in range(0, len(rows), batch_rows):
            part = Rows(*(array[start : start + batch_rows] for array in vars(rows).values()))
            trainer._loss(part, int(rows.answer.sum())).backward()
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])

    assert torch.allclose(gradient(len(rows)), gradient(size), atol=1e-6)


def test_schedule_rises_stays_and_falls() -> None:
    values = [schedule(x, 0.1, 0.25) for x in np.linspace(0, 1, 101)]
    assert values[0] < 0.05 and values[50] == 1.0 and values[100] == 0.0
    assert values == sorted(values[:11]) + values[11:76] + sorted(values[76:], reverse=True)


def test_recipe_errors_name_the_key(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('data = "d"\noutput = "o"\nlearning_rat = 1')
    with pytest.raises(RecipeError, match="unknown key 'learning_rat'; did you mean 'learning_rate'"):
        load_sft_recipe(path)
    path.write_text('data = "d"\noutput = "o"\nsteps = "many"')
    with pytest.raises(RecipeError, match="'steps' must be a number"):
        load_sft_recipe(path)
    with pytest.raises(RecipeError, match="no such recipe"):
        load_sft_recipe(tmp_path / "none.toml")


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no readable tokenizer\.json there"):
        save_tokenizer_copy(tmp_path / "none", tmp_path / "out")
