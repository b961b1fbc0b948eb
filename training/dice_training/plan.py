"""``dice train plan RECIPE.toml``: what a run will need and how long it will take, before a GPU is rented for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dice_engine.model.config import SdarConfig

from dice_training.gpus import GPUS, HOST_BANDWIDTH, HOST_LINK, Gpu
from dice_training.memory import Memory, Sizes, memory
from dice_training.recipe import RecipeError, SftRecipe
from dice_training.speed import Work, training_flops

SAMPLE = {"fim": (450, 250), "chat": (1500, 600)}
"""Tokens of a prompt and its answer: about what a row of CuKe has in nano's tokens, and in those of the published
models. ``tests/bench/check_sft_speed.py`` measures with the same."""
SPARE = 0.95
"""Of the memory: a plan that needs more than that does not fit."""


@dataclass(frozen=True)
class Plan:
    gpus: int
    gpu: str
    memory: Memory
    """On each GPU, bytes."""
    gpu_memory: int
    fits: bool
    efficiency: float
    """The share of the peak that the products of matrices are expected to reach."""
    compute_seconds: float
    """A step's, like the next ones."""
    link_seconds: float
    """Between the GPUs and with the host; hidden behind the computing as far as that is longer."""
    optimizer_seconds: float
    step_seconds: float
    positions_per_s: float
    """Of both copies of the sequence, all GPUs together, as the log counts them."""
    tokens_per_s: float
    """Of the samples."""
    mfu: float
    steps: int
    hours: float


def plan(config: SdarConfig, recipe: SftRecipe, gpus: int, name: str) -> Plan:
    """Raises RecipeError for a GPU that is not known, or a step that the GPUs cannot share."""
    gpu = GPUS.get(name)
    if gpu is None:
        raise RecipeError(f"--gpu {name}: not known, known are {', '.join(GPUS)}")
    if gpus < 1 or recipe.accumulate % gpus:
        raise RecipeError(f"--gpus {gpus}: accumulate is {recipe.accumulate}, which must be a multiple of it")
    batch = expected_work(config, recipe)
    turns = recipe.accumulate // gpus
    flops = training_flops(config, batch)
    # The layers' forward pass, a third of the whole, once more.
    done = flops * (4 / 3 if recipe.checkpointing else 1)
    if recipe.lora_rank:  # frozen weights need no gradients, a third of the whole
        done -= flops / 3
    share = efficiency(config.hidden_size)
    compute = turns * done / (gpu.flops * share)
    every_batch, at_the_end = _link_seconds(config, recipe, gpus, gpu)
    optimizer = _optimizer_seconds(config, recipe, gpus, gpu)
    step = max(compute, turns * every_batch) + at_the_end + optimizer
    needed = memory(config, recipe, gpus, batch.hidden)
    prompt, answer = SAMPLE[config.format]
    positions = recipe.accumulate * batch.positions / step
    seconds = recipe.steps * step
    if recipe.max_minutes:
        seconds = min(seconds, recipe.max_minutes * 60)
    return Plan(
        gpus=gpus,
        gpu=name,
        memory=needed,
        gpu_memory=gpu.memory,
        fits=needed.total <= SPARE * gpu.memory,
        efficiency=share,
        compute_seconds=compute,
        link_seconds=turns * every_batch + at_the_end,
        optimizer_seconds=optimizer,
        step_seconds=step,
        positions_per_s=positions,
        tokens_per_s=positions * (prompt + answer) / (prompt + 2 * answer),
        mfu=turns * flops / step / gpu.flops,
        steps=recipe.steps,
        hours=seconds / 3600,
    )


def expected_work(config: SdarConfig, recipe: SftRecipe) -> Work:
    """Of one batch whose rows are full of samples of the usual size; half of the answers' tokens are hidden."""
    prompt, answer = SAMPLE[config.format]
    positions = recipe.batch_rows * recipe.row_length
    samples = positions / (prompt + 2 * answer)
    whole = prompt + answer
    # A query sees half of a block more than what is before it.
    pairs = whole * (whole + recipe.block_size) / 2 + answer * (prompt + (answer + recipe.block_size) / 2)
    return Work(positions, int(samples * pairs), int(samples * answer / 2))


def efficiency(width: int) -> float:
    """Products of wide matrices reach more of the peak. Through what an H200 reaches at widths of 512, 2,048 and 4,096
    (26.4, 43.9 and 48.5 %: nano, the 1.7B shape, adapters of the 8B shape; commands in training/README.md)."""
    return 0.56 * width / (width + 580)


def _link_seconds(config: SdarConfig, recipe: SftRecipe, gpus: int, gpu: Gpu) -> tuple[float, float]:
    """With each batch, and at the end of a step. FSDP2 gathers the layers in bf16 for either pass and the rest once,
    and adds up gradients in float32; else gradients are added up at the end, where each travels twice (a ring)."""
    sizes = Sizes.of(config, recipe.lora_rank)
    layers = config.num_hidden_layers * (sizes.layer + sizes.adapters)
    trained = sizes.trained(config.num_hidden_layers)
    away = (gpus - 1) / gpus
    if not recipe.shard:
        return 0.0, 2 * 4 * trained * away / gpu.link
    every = (2 * (2 * layers + sizes.rest) + 4 * trained) * away / gpu.link
    if recipe.offload:
        every += (4 * (2 * layers + sizes.rest) + 4 * trained) / gpus / HOST_LINK
    return every, 0.0


def _optimizer_seconds(config: SdarConfig, recipe: SftRecipe, gpus: int, gpu: Gpu) -> float:
    """Bound by memory: AdamW reads four numbers a weight and writes three, clipping reads the gradient twice and writes
    it, and an average takes three."""
    numbers = 4 + 3 + 3 + (3 if recipe.ema else 0)
    parts = gpus if recipe.shard else 1
    trained = Sizes.of(config, recipe.lora_rank).trained(config.num_hidden_layers)
    bandwidth = HOST_BANDWIDTH / gpus if recipe.offload else gpu.bandwidth
    return 4 * numbers * trained / parts / bandwidth


def as_json(made: Plan) -> dict[str, Any]:
    table = asdict(made)
    table["memory"]["total"] = made.memory.total
    return table


def as_text(made: Plan) -> str:
    parts = {name: size for name, size in asdict(made.memory).items() if name != "host"}
    lines = [f"{made.gpus} x {made.gpu}, on each GPU:"]
    lines += [f"  {name:<12} {size / 2**30:8.1f} GiB" for name, size in parts.items()]
    verdict = "fits" if made.fits else "does not fit"
    lines.append(
        f"  {'total':<12} {made.memory.total / 2**30:8.1f} GiB of {made.gpu_memory / 2**30:.0f}: {verdict}"
    )
    if made.memory.host:
        lines.append(f"  {'on the host':<12} {made.memory.host / 2**30:8.1f} GiB")
    lines += [
        f"a step {made.step_seconds:.2f} s: computing {made.compute_seconds:.2f} "
        f"(at {made.efficiency:.0%} of the peak), links {made.link_seconds:.2f}, "
        f"optimizer {made.optimizer_seconds:.2f}",
        f"{made.positions_per_s:,.0f} positions/s, {made.tokens_per_s:,.0f} tokens/s, MFU {made.mfu:.0%}",
        f"{made.steps} steps: {made.hours:.2f} hours",
    ]
    return "\n".join(lines)
