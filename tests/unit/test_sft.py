"""The training loop: it learns, and its gradient does not depend on how a step is cut."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.model.weights import load_model
from dice_training.feed import Inputs, Place, noised, take
from dice_training.masks import dense_mask
from dice_training.objective import Batch, Corrupted
from dice_training.optimizers import schedule
from dice_training.packing import Sample, make_sample, pack
from dice_training.recipe import ModelShape, RecipeError, SftRecipe, load_sft_recipe
from dice_training.sft import save_tokenizer_copy, train
from dice_training.speed import Work, training_flops
from dice_training.train_cli import main
from dice_training.trainer import Trainer
from torch.utils.flop_counter import FlopCounterMode

END = 0


def tiny_model(seed: int = 0, layers: int = 2) -> SdarModel:
    config = SdarConfig(
        vocab_size=24,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
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
    before = sum(trainer.evaluate(samples[:64]).values())
    trainer.run(samples, [])
    after = sum(trainer.evaluate(samples[:64]).values())
    assert after < before / 2


@pytest.mark.parametrize("cut", [1, 2, 4])
@pytest.mark.parametrize("length", [48, 64, 128])
def test_the_gradient_depends_on_neither_accumulation_nor_packing(
    tmp_path: Path, cut: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide_all(batch: Batch, **_: object) -> Corrupted:
        # Random draws differ between one big batch and several small ones; without them, everything is equal.
        return Corrupted(torch.where(batch.answer, 1, batch.ids), batch.answer.clone(), batch.answer.float())

    monkeypatch.setattr("dice_training.feed.corrupt", hide_all)
    samples = copies(60)

    def gradient(length: int, cut: int) -> torch.Tensor:
        rows = pack(samples, length, 4)
        trainer = Trainer(recipe(tmp_path, row_length=length), tiny_model(), print, tmp_path)
        size = -(-len(rows) // cut)
        parts = [
            noised(take(rows, np.arange(start, min(start + size, len(rows)))), trainer.noise, (0,))
            for start in range(0, len(rows), size)
        ]
        answers = sum(part.answers for part in parts)
        for part in parts:
            (trainer.forward.loss_sum(part) / answers).backward()
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])

    assert torch.allclose(gradient(64, 1), gradient(length, cut), atol=1e-6)


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


@pytest.mark.parametrize("name", ["nano", "sdar-1.7b", "sdar-4b", "sdar-8b", "scale-1.7b", "scale-8b-lora"])
def test_the_recipes_that_are_shipped_can_be_read(name: str) -> None:
    plan = load_sft_recipe(Path("training/recipes") / f"{name}.toml")
    assert plan.output == f"runs/{name}"


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no readable tokenizer\.json there"):
        save_tokenizer_copy(tmp_path / "none", tmp_path / "out")


def states(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {**{f"w {n}": p.detach() for n, p in trainer.weights.items()}, **trainer.average}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    """Stopped in the second epoch (it has 5 steps) and resumed by another process's worth of fresh objects."""
    plan = recipe(tmp_path, optimizer=optimizer, steps=12, accumulate=2)
    samples = copies(200)

    def trained(folder: Path, stops: list[int]) -> dict[str, torch.Tensor]:
        for number, stop in enumerate([*stops, plan.steps]):
            trainer = Trainer(plan, tiny_model(), lambda line: None, folder)
            if number:
                trainer.resume()
            stop_at(trainer, stop)
            trainer.run(samples, [])
        assert trainer.progress.step == plan.steps
        return states(trainer)

    whole, cut = trained(tmp_path / "whole", []), trained(tmp_path / "cut", [3, 8])
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def stop_at(trainer: Trainer, step: int) -> None:
    """A signal that arrives while step number ``step`` - 1 is in progress."""
    original = trainer.step

    def watched(parts: list[Inputs], rate: float) -> torch.Tensor:
        if trainer.progress.step + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(parts, rate)

    trainer.step = watched  # type: ignore[method-assign]


def test_another_data_file_is_read_from_its_start_with_the_same_optimizer(tmp_path: Path) -> None:
    plan = recipe(tmp_path, steps=6)
    first = Trainer(plan, tiny_model(), lambda line: None, tmp_path)
    stop_at(first, 3)
    first.run(copies(60), [])
    lines: list[str] = []
    second = Trainer(plan, tiny_model(1), lines.append, tmp_path)
    second.resume()
    before = {n: t.clone() for n, t in states(second).items()}
    assert all(torch.equal(before[n], t) for n, t in states(first).items())
    second.run(copies(90), [])
    assert second.progress.step == 6 and second.progress.place == Place(0, 3)
    assert any("the data differs" in line for line in lines)


def test_a_part_of_a_run_stops_in_time_and_does_not_decay(tmp_path: Path) -> None:
    """One command of a run planned for an hour: its rate stays at the peak."""
    plan = recipe(tmp_path, steps=1_000_000, max_minutes=60.0, warmup=0.0)
    trainer = Trainer(plan, tiny_model(), lambda line: None, tmp_path)
    rates: list[float] = []
    original = trainer.step
    trainer.step = lambda parts, rate: (rates.append(rate), original(parts, rate))[1]  # type: ignore[method-assign]
    trainer.run(copies(60), [], stop_after=0.01)
    assert len(rates) > 2 and set(rates) == {1.0}
    assert 0 < trainer.progress.seconds < 5


@pytest.mark.parametrize("content", [None, b"no tensors"])
def test_a_state_that_cannot_be_read_is_one_clear_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "state.safetensors").write_bytes(content)
    with pytest.raises(RecipeError, match=r"state\.safetensors: (nothing to resume|not the state of a run)"):
        Trainer(recipe(tmp_path), tiny_model(), print, tmp_path).resume()


def test_the_state_of_another_model_is_refused(tmp_path: Path) -> None:
    trainer = Trainer(recipe(tmp_path), tiny_model(), lambda line: None, tmp_path)
    trainer._save()
    with pytest.raises(RecipeError, match="another model"):
        Trainer(recipe(tmp_path), tiny_model(layers=3), print, tmp_path).resume()


@pytest.fixture
def tiny_plan(tmp_path: Path) -> Path:
    """A recipe file for three steps of almost nothing on real rows."""
    rows = [json.loads(line) for line in Path("tests/data/handmade.jsonl").read_text().splitlines()]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({**row, "split": "train"}) for row in rows))
    plan = tmp_path / "tiny.toml"
    plan.write_text(
        f'data = "{data}"\noutput = "{tmp_path / "out"}"\nsteps = 3\nrow_length = 4096\nbatch_rows = 1\n'
        "[shape]\nlayers = 1\nhidden = 16\nintermediate = 16\nheads = 1\nkv_heads = 1\nhead_dim = 16\nvocab = 400\n"
    )
    return plan


def test_the_command_stops_in_time_and_resumes(
    tiny_plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sft", str(tiny_plan), "--stop-after", "0"]) == 0
    assert "state saved at step 1" in capsys.readouterr().err
    tokenizer = (tmp_path / "out/tokenizer.json").read_bytes()
    assert main(["sft", str(tiny_plan), "--resume"]) == 0
    out = capsys.readouterr()
    assert "resumed at step 1" in out.err and "state saved at step 3" in out.err
    assert out.out.strip() == str(tmp_path / "out")
    assert (tmp_path / "out/tokenizer.json").read_bytes() == tokenizer


def test_the_command_that_is_ended_saves_and_says_so(
    tiny_plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.step

    def ended(self: Trainer, parts: list[Inputs], rate: float) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return original(self, parts, rate)

    monkeypatch.setattr(Trainer, "step", ended)
    assert main(["sft", str(tiny_plan)]) == 1
    err = capsys.readouterr().err
    assert "state saved at step 1" in err and "--resume goes on" in err and "Traceback" not in err
    assert {"state.safetensors", "model.safetensors", "config.json"} <= {
        p.name for p in (tmp_path / "out").iterdir()
    }


def test_a_run_leaves_its_curves_and_goes_on_with_them(tmp_path: Path) -> None:
    plan = recipe(tmp_path, steps=60, eval_every=20)
    lines: list[str] = []
    first = Trainer(plan, tiny_model(), lines.append, tmp_path)
    stop_at(first, 45)
    first.run(copies(60), copies(8))
    second = Trainer(plan, tiny_model(), lines.append, tmp_path)
    second.resume()
    second.run(copies(60), copies(8))
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in entries if "loss" in e] == [0, 50, 59]
    held_out = [e for e in entries if "held_out" in e]
    assert [e["step"] for e in held_out] == [19, 39, 44, 59]
    assert held_out[-1]["held_out"] < held_out[0]["held_out"]
    assert held_out[0]["held_out/0.1"] < held_out[0]["held_out/0.9"]
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64," in page and "http" not in page
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_without_an_average_the_weights_themselves_are_saved(tmp_path: Path) -> None:
    trainer = Trainer(recipe(tmp_path, ema=0.0, steps=2, quantize=False), tiny_model(), print, tmp_path)
    trainer.run(copies(30), [])
    assert not trainer.average
    saved = load_model(tmp_path, dtype=torch.float32)
    for (name, ours), theirs in zip(trainer.weights.items(), saved.parameters(), strict=True):
        assert torch.equal(ours.detach().bfloat16().float(), theirs), name


def test_checkpointing_changes_no_gradient(tmp_path: Path) -> None:
    gradients = []
    for checkpointing in (False, True):
        trainer = Trainer(recipe(tmp_path, checkpointing=checkpointing), tiny_model(), print, tmp_path)
        part = noised(pack(copies(12), 64, 4), trainer.noise, (0,))
        trainer.forward.loss_sum(part).backward()
        gradients.append([p.grad for p in trainer.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("length", [60, 64])
def test_operations_are_those_that_torch_counts(tmp_path: Path, length: int) -> None:
    """Matrix products by torch's own counter; attention by counting the pairs of a dense mask."""
    trainer = Trainer(recipe(tmp_path, row_length=length), tiny_model(), print, tmp_path)
    samples = copies(9)
    rows = pack(samples, length, 4)  # of 64: rows without padding
    part = noised(rows, trainer.noise, (0,))
    used = sum(sample.rows_needed(4) for sample in samples)
    padding = [length - 16 * (1 + int(row[row < row[-1]].max(initial=-1))) for row in rows.document]
    padding = [0 if noisy[-1] else size for size, noisy in zip(padding, rows.noisy, strict=True)]
    pairs = int(dense_mask(part.codes).sum()) - sum(size**2 for size in padding)
    assert part.work == Work(used, pairs, len(part.place))
    config = trainer.model.config
    with FlopCounterMode(display=False) as counter:
        trainer.forward.loss_sum(part).backward()
    products = counter.get_flop_counts()["Global"]
    dense = sum(count for name, count in products.items() if name == torch.ops.aten.mm)
    assert training_flops(config, Work(rows.ids.size, 0, part.work.hidden)) == pytest.approx(dense, rel=0.01)
    assert training_flops(config, Work(0, pairs, 0)) == 12 * 2 * 2 * 16 * pairs


def test_greedy_cores_are_judged_while_it_trains(tmp_path: Path) -> None:
    """Two layers know nothing after two steps, and the judge says so."""
    rows = [json.loads(line) for line in Path("tests/data/handmade.jsonl").read_text().splitlines()]
    shortest = min(rows, key=lambda row: len(row["reference"] + row["program"]))
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({**shortest, "split": split}) for split in ("train", "test")))
    plan = SftRecipe(
        data=str(data),
        output=str(tmp_path / "out"),
        shape=ModelShape(2, 16, 16, 2, 1, 8, vocab=800, context=400),
        row_length=640,
        batch_rows=1,
        steps=2,
        pass_file=str(data),
        pass_rows=1,
    )
    lines: list[str] = []
    train(plan, lines.append)
    assert any("held-out loss" in line and "pass@1 0.0%" in line for line in lines), lines
    entries = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text().splitlines()]
    assert entries[-1]["pass@1"] == 0.0


def test_a_machine_without_tensorboard_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    Trainer(recipe(tmp_path, steps=2), tiny_model(), lambda line: None, tmp_path).run(copies(30), [])
    assert (tmp_path / "log.jsonl").read_text() and (tmp_path / "report.html").is_file()
    assert not (tmp_path / "tensorboard").exists()
