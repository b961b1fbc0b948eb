"""Adapters: only they are trained, and what is saved is a plain checkpoint with them inside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.model.weights import load_model
from dice_training.lora import add_adapters, merged
from dice_training.packing import make_sample
from dice_training.recipe import RecipeError, SftRecipe
from dice_training.sft import train
from dice_training.trainer import Trainer

pytest.importorskip("peft")


def adapted_model() -> SdarModel:
    config = SdarConfig(24, 32, 64, 2, 2, 1, head_dim=16, tie_word_embeddings=True, mask_token_id=1)
    model = SdarModel(config)
    model.reset_parameters(torch.Generator().manual_seed(0))
    model.bfloat16()
    torch.manual_seed(0)
    add_adapters(model, 4)
    return model


def test_training_moves_the_adapters_only_and_the_checkpoint_holds_the_sum(tmp_path: Path) -> None:
    model = adapted_model()
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    plan = SftRecipe(
        data="", output=str(tmp_path), row_length=64, batch_rows=2, steps=6, ema=0.0, quantize=False
    )
    samples = [make_sample([5 + i % 9] * 3, [7, 8, 9, 0], 0, 4) for i in range(40)]
    # On the CPU nothing is autocast; bf16 weights meet float32 inputs there only in this test.
    model.float()
    trainer = Trainer(plan, model, lambda line: None, tmp_path)
    trainer.run(samples, [])
    after = dict(model.named_parameters())
    assert all(torch.equal(frozen[n].float(), after[n]) for n in frozen)
    ids = torch.arange(2, 18)[None]
    with torch.no_grad():
        ours = model(ids)
        with merged(model) as plain:
            assert torch.allclose(ours, plain(ids), atol=1e-4)
            assert not any("lora" in name for name, _ in plain.named_parameters())
        assert torch.equal(ours, model(ids))
        trainer.save_average()
        theirs = load_model(tmp_path, dtype=torch.float32)(ids)
    assert torch.allclose(ours, theirs, atol=0.05)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
        assert not torch.allclose(ours, model(ids), atol=0.01)  # the adapters did something


def test_adapters_resume_without_the_frozen_weights(tmp_path: Path) -> None:
    plan = SftRecipe(data="", output=str(tmp_path), row_length=64, batch_rows=2)
    first = Trainer(plan, adapted_model(), lambda line: None, tmp_path)
    for parameter in first.weights.values():
        parameter.data += 1.0
    first._save()
    second = Trainer(plan, adapted_model(), lambda line: None, tmp_path)
    second.resume()
    assert all(torch.equal(first.weights[n], second.weights[n]) for n in first.weights)
    assert all("lora" in name for name in first.weights)


def test_a_checkpoint_is_tuned_by_adapters_and_loads_like_any_other(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in Path("tests/data/handmade.jsonl").read_text().splitlines()]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({**row, "split": "train"}) for row in rows))
    plan = SftRecipe(
        data=str(data),
        output=str(tmp_path / "out"),
        init=str(tiny_checkpoint),
        block_size=8,
        row_length=512,
        batch_rows=1,
        steps=2,
        lora_rank=2,
        quantize=False,
    )
    with pytest.raises(RecipeError, match="too long"):
        train(plan, lambda line: None)
    config = json.loads((tiny_checkpoint / "config.json").read_text())
    (tmp_path / "long").mkdir()
    (tmp_path / "long/config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / "long" / name).write_bytes((tiny_checkpoint / name).read_bytes())
    train(replace(plan, init=str(tmp_path / "long"), row_length=6144), lambda line: None)
    before, after = load_model(tmp_path / "long"), load_model(tmp_path / "out")
    assert after.config.block_size == 8
    assert [n for n, _ in after.named_parameters()] == [n for n, _ in before.named_parameters()]
    moved = {
        n
        for (n, old), new in zip(before.named_parameters(), after.parameters(), strict=True)
        if not torch.equal(old.bfloat16(), new.bfloat16())
    }
    assert moved and all("proj" in name for name in moved)
