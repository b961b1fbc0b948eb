"""What a run is planned to need, against tensors that are counted."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel, rotary_table
from dice_training.forward import _layer
from dice_training.gpus import GPUS
from dice_training.lora import add_adapters
from dice_training.memory import Sizes, activations, memory
from dice_training.packing import make_sample
from dice_training.plan import expected_work, plan
from dice_training.ranks import joined
from dice_training.recipe import SftRecipe
from dice_training.train_cli import main
from dice_training.trainer import Trainer
from torch import Tensor

CONFIG = SdarConfig(96, 64, 192, 3, 4, 2, head_dim=16, mask_token_id=1)
RECIPES = Path("training/recipes")


def network(lora_rank: int) -> SdarModel:
    model = SdarModel(CONFIG)
    model.reset_parameters(torch.Generator().manual_seed(0))
    if lora_rank:
        model.bfloat16()
        add_adapters(model, lora_rank)
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "muon"},
        {"ema": 0.0},
        {"lora_rank": 4},
        {"lora_rank": 4, "optimizer": "muon"},
        {"shard": True},
    ],
)
def test_weights_gradients_and_optimizer_are_those_of_a_trainer(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    values = {"row_length": 64, "batch_rows": 1, "steps": 1, "quantize": False, "ema": 0.9, **changes}
    recipe = SftRecipe("", str(tmp_path), **values)  # type: ignore[arg-type]
    with joined(group=recipe.shard) as ranks:
        model = network(recipe.lora_rank)
        trainer = Trainer(recipe, model, lambda line: None, tmp_path, ranks, torch.device("cpu"))
        gradients: list[int] = []
        original = trainer.optimizers[0].step
        trainer.optimizers[0].step = lambda: (  # type: ignore[method-assign]
            gradients.append(size([p.grad for p in model.parameters() if p.grad is not None])),
            original(),
        )
        trainer.run([make_sample([5, 6], [7, 0], 0, 4)], [])
        state = [v for o in trainer.optimizers for entry in o.state.values() for v in entry.values()]
        expected = memory(CONFIG, replace(recipe, accumulate=2), 1, hidden=10)
        assert expected.weights == size(list(model.parameters()))
        assert [expected.gradients] == gradients
        assert expected.optimizer == size([tensor for tensor in state if tensor.dim()])
        assert expected.average == size(list(trainer.average.values()))


def size(tensors: list[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("lora_rank", [0, 8])
def test_activations_are_what_a_compiled_layer_keeps(lora_rank: int) -> None:
    """By the partitioner that decides it on a GPU too. The CPU's attention keeps its mask, a GPU's does not."""
    length = 128
    model = network(lora_rank)
    layer = model.model.layers[0]
    parameters = dict(layer.named_parameters())
    run = torch.compile(_layer, backend="aot_eager_decomp_partition")
    x = torch.randn(1, length, CONFIG.hidden_size, dtype=torch.bfloat16, requires_grad=True)
    cos, sin = rotary_table(torch.arange(length)[None], CONFIG.head_dim, 1e4)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool)
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        run(copy.deepcopy(layer).to("meta"), parameters, x, cos, sin, mask)
    for given in (cos, sin, mask, *parameters.values()):
        kept.pop(given.untyped_storage().data_ptr(), None)
    counted = sum(t.untyped_storage().nbytes() for t in kept.values() if t.shape[-2:] != mask.shape[-2:])
    sizes = Sizes.of(CONFIG, lora_rank)
    copies = 2 * (sizes.adapters if lora_rank else sizes.matrices)
    recipe = SftRecipe("", "", batch_rows=1, row_length=length, lora_rank=lora_rank)
    assert activations(replace(CONFIG, num_hidden_layers=1), recipe) + copies == counted


def test_more_gpus_need_less_each_and_take_less_time() -> None:
    recipe = SftRecipe("", "", shard=True, accumulate=8, row_length=6144, batch_rows=2)
    config = SdarConfig(151936, 2048, 6144, 28, 16, 8)
    one, eight = (plan(config, recipe, count, "H200") for count in (1, 8))
    assert eight.memory.weights == one.memory.weights // 8
    assert eight.memory.activations == one.memory.activations
    assert 7 < one.step_seconds / eight.step_seconds <= 8
    slow = plan(config, replace(recipe, offload=True), 8, "H200")
    assert slow.memory.host and not slow.memory.weights and slow.step_seconds > eight.step_seconds
    saving = plan(config, replace(recipe, checkpointing=True), 8, "H200")
    assert saving.memory.activations < eight.memory.activations / 10
    assert saving.step_seconds == pytest.approx(eight.step_seconds * 4 / 3, rel=0.1)


SHAPE = SdarConfig(151936, 2048, 6144, 28, 16, 8, tie_word_embeddings=False)
SHAPE_8B = SdarConfig(151936, 4096, 12288, 36, 32, 8, tie_word_embeddings=False)


@pytest.mark.parametrize(
    ("config", "changes", "gpus", "positions", "allocated"),
    [
        (SHAPE, {"accumulate": 2}, 1, 46_129, 56.2),
        (SHAPE, {"accumulate": 2}, 2, None, 37.8),
        (SHAPE_8B, {"lora_rank": 64, "checkpointing": True}, 1, 11_159, 26.4),
    ],
)
def test_the_plan_is_within_15_percent_of_what_was_measured(
    config: SdarConfig, changes: dict[str, Any], gpus: int, positions: float | None, allocated: float
) -> None:
    """On H200s; ``allocated``: GiB by torch, which does not see what CUDA itself takes."""
    recipe = SftRecipe("", "", shard=True, row_length=6144, batch_rows=2, ema=0.0, **changes)
    made = plan(config, recipe, gpus, "H200")
    assert positions is None or made.positions_per_s == pytest.approx(positions, rel=0.15)
    assert (made.memory.total - made.memory.other) / 2**30 == pytest.approx(allocated, rel=0.15)


def test_expected_work_is_that_of_full_rows() -> None:
    recipe = SftRecipe("", "", batch_rows=2, row_length=4200)
    work = expected_work(replace(CONFIG, dice={"format": "chat"}), recipe)
    clean = sum((i // 4 + 1) * 4 for i in range(2100))
    noisy = sum((i // 4 + 1) * 4 for i in range(1500, 2100))
    assert work.positions == 8400 and work.pairs == pytest.approx(8400 / 2700 * (clean + noisy), rel=0.01)


@pytest.mark.parametrize("name", ["scale-1.7b", "scale-8b-lora"])
@pytest.mark.parametrize("gpu", GPUS)
def test_the_command_plans_the_recipes_for_every_gpu(
    name: str, gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["plan", str(RECIPES / f"{name}.toml"), "--gpus", "4", "--gpu", gpu, "--json"])
    made = json.loads(capsys.readouterr().out)
    parts = [value for key, value in made["memory"].items() if key not in ("host", "total")]
    assert made["memory"]["total"] == sum(parts)
    assert status == (0 if made["fits"] else 1)
    assert made["fits"] == (made["memory"]["total"] <= 0.95 * GPUS[gpu].memory)
    assert main(["plan", str(RECIPES / f"{name}.toml"), "--gpus", "4", "--gpu", gpu]) == status
    assert f"4 x {gpu}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "H300"], "known are H200"),
        (["--gpus", "3"], "must be a multiple of it"),
        (["--gpus", "0"], "must be a multiple of it"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(RECIPES / "scale-1.7b.toml"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
