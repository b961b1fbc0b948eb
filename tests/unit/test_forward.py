"""Masks by codes, block masks by tiles, and the compiled forward pass against plain implementations."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_training.feed import Inputs, Noise, noised
from dice_training.forward import Forward
from dice_training.lora import add_adapters
from dice_training.masks import block_mask, codes, dense_mask, mask_mod
from dice_training.objective import diffusion_loss
from dice_training.packing import Rows, make_sample, pack
from dice_training.recipe import SftRecipe
from dice_training.trainer import Trainer
from torch.nn.attention.flex_attention import create_block_mask

END, MASK = 0, 1


def rows_of(length: int, block_size: int, count: int, seed: int = 0, words: int = 90) -> Rows:
    rng = random.Random(seed)
    samples = []
    for _ in range(count):
        prompt = [rng.randrange(2, words) for _ in range(rng.randrange(0, length // 4))]
        samples.append(make_sample(prompt, [5] * rng.randrange(0, length // 8) + [END], END, block_size))
    return pack(samples, length, block_size)


def model(device: str = "cpu", layers: int = 2) -> SdarModel:
    config = SdarConfig(90, 64, 96, layers, 4, 2, head_dim=16, tie_word_embeddings=True, mask_token_id=MASK)
    out = SdarModel(config)
    out.reset_parameters(torch.Generator().manual_seed(0))
    return out.to(device)


@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 128])
def test_tiles_are_those_that_trying_every_pair_gives(block_size: int) -> None:
    length = 1024 if block_size < 128 else 1536
    rows = rows_of(length, block_size, 14)
    inputs = noised(rows, Noise(MASK, block_size, "block"), (0,))
    rule = mask_mod(inputs.codes)
    ours = block_mask(inputs.codes, block_size, rule)
    slow = create_block_mask(rule, len(rows), None, length, length, device="cpu")
    assert torch.equal(ours.to_dense(), slow.to_dense())
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(ours, name), getattr(slow, name)), name
    assert int(slow.full_kv_num_blocks.sum()) > 0 or block_size == 128  # type: ignore[union-attr]


@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_codes_are_the_three_rules(block_size: int) -> None:
    rows = rows_of(96, block_size, 8, seed=3)
    tensors = (torch.from_numpy(array) for array in (rows.position, rows.document, rows.noisy))
    allowed = dense_mask(codes(*tensors, block_size=block_size))[:, 0].numpy()
    for row in range(len(rows)):
        for q in range(96):
            for k in range(96):
                c_q, c_k = not rows.noisy[row, q], not rows.noisy[row, k]
                b_q, b_k = rows.position[row, q] // block_size, rows.position[row, k] // block_size
                rule = (
                    (not c_q and not c_k and b_q == b_k)
                    or (not c_q and c_k and b_q > b_k)
                    or (c_q and c_k and b_q >= b_k)
                )
                assert allowed[row, q, k] == (rule and rows.document[row, q] == rows.document[row, k])


def whole_network_loss(network: SdarModel, inputs: Inputs) -> torch.Tensor:
    """All logits by the network's own forward, then the formula."""
    logits = network(inputs.ids, positions=inputs.position, attend=dense_mask(inputs.codes)).flatten(0, 1)
    return diffusion_loss(logits[inputs.place], inputs.target, inputs.weight, 1)


def test_the_loss_is_that_of_the_whole_network() -> None:
    network = model()
    inputs = noised(rows_of(256, 4, 12), Noise(MASK, 4, "block"), (1,))
    forward = Forward(network, 4, (len(inputs.ids), 256), torch.device("cpu"))
    forward.chunk = 7  # many chunks, the last one short
    ours, slow = forward.loss_sum(inputs), whole_network_loss(network, inputs)
    assert torch.allclose(ours, slow, rtol=1e-5)
    mine = torch.autograd.grad(ours, list(network.parameters()))
    assert all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-4)
        for a, b in zip(mine, torch.autograd.grad(slow, list(network.parameters())), strict=True)
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_five_compiled_steps_are_those_of_the_plain_path(tmp_path: Path, optimizer: str) -> None:
    """On the GPU, bf16 and compiled, against float32 on the CPU with dense masks: the same batches and noise."""
    plan = SftRecipe(
        data="",
        output=str(tmp_path),
        row_length=1024,
        batch_rows=4,
        optimizer=optimizer,  # type: ignore[arg-type]
    )
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        trainer = Trainer(plan, model(device, layers=4), print, tmp_path)
        batches = [
            noised(
                Rows(*(array[:4] for array in vars(rows_of(1024, 4, 40, seed)).values())),
                trainer.noise,
                (seed,),
            )
            for seed in range(5)
        ]
        losses[device] = [trainer.step([batch], 1.0).item() for batch in batches]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=0.01)
    assert losses["cpu"][-1] < losses["cpu"][0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_one_compiled_layer_serves_all_layers_and_repeats_to_the_bit(tmp_path: Path) -> None:
    from torch._dynamo.utils import counters

    plan = SftRecipe(data="", output=str(tmp_path), row_length=1024, batch_rows=4, optimizer="muon")
    ends = []
    for _ in range(2):
        trainer = Trainer(plan, model("cuda", layers=12), print, tmp_path)
        counters.clear()
        for seed in range(3):
            rows = rows_of(1024, 4, 40 + seed, seed)
            part = noised(Rows(*(array[:4] for array in vars(rows).values())), trainer.noise, (seed,))
            trainer.step([part], 1.0)
        ends.append(trainer.weights)
        assert counters["stats"]["unique_graphs"] <= 2, counters["recompile_limit"]
    assert [name for name, weight in ends[0].items() if not torch.equal(weight, ends[1][name])] == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_never_waits_for_the_gpu(tmp_path: Path) -> None:
    """So that the host can prepare the next launches while the GPU works."""
    plan = SftRecipe(data="", output=str(tmp_path), row_length=1024, batch_rows=4, optimizer="muon")
    trainer = Trainer(plan, model("cuda"), print, tmp_path)
    rows = Rows(*(array[:4] for array in vars(rows_of(1024, 4, 40)).values()))
    for seed in range(3):  # the first step compiles
        trainer.step([noised(rows, trainer.noise, (seed,)).pinned()], 1.0)
    parts = [noised(rows, trainer.noise, (seed,)).pinned() for seed in range(3, 6)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for part in parts:
            trainer.step([part], 1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("change", ["checkpointing", "adapters"])
def test_large_models_compiled_train_as_on_the_cpu(tmp_path: Path, change: str) -> None:
    plan = SftRecipe(
        data="",
        output=str(tmp_path),
        row_length=1024,
        batch_rows=4,
        ema=0.0,
        checkpointing=change == "checkpointing",
    )
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        network = model(layers=4)
        if change == "adapters":
            torch.manual_seed(0)
            add_adapters(network, 4)
            for parameter in network.parameters():
                if device == "cuda" and not parameter.requires_grad:
                    parameter.data = parameter.data.bfloat16()
        trainer = Trainer(plan, network.to(device), print, tmp_path)
        losses[device] = []
        for seed in range(4):
            rows = Rows(*(array[:4] for array in vars(rows_of(1024, 4, 40, seed)).values()))
            losses[device].append(trainer.step([noised(rows, trainer.noise, (seed,))], 1.0).item())
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=0.01)
