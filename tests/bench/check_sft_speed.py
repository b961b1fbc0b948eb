"""Speed of an SFT step on this machine's GPU, on random samples: positions/s, MFU, where a step's time goes, and what
the plain ways cost (a loop over Muon's matrices, a block mask from trying every pair). Needs an NVIDIA GPU."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_training.feed import Feed
from dice_training.masks import block_mask
from dice_training.packing import Sample, make_sample
from dice_training.recipe import SftRecipe
from dice_training.speed import Work, peak_flops, training_flops
from dice_training.trainer import Trainer
from torch.nn.attention.flex_attention import create_block_mask


@dataclass(frozen=True)
class Case:
    config: SdarConfig
    prompt: int
    answer: int
    recipe: SftRecipe


CASES = {
    # About what a CuKe row has in nano's tokens, and in those of the published models with the chat's example.
    "nano": Case(
        SdarConfig(4096, 512, 1536, 8, 8, 4, head_dim=64, tie_word_embeddings=True, mask_token_id=1),
        450,
        250,
        SftRecipe(data="", output="", row_length=4096, noise="block", optimizer="muon"),
    ),
    "1.7b": Case(
        SdarConfig(151936, 2048, 6144, 28, 16, 8, head_dim=128, tie_word_embeddings=False),
        1500,
        600,
        SftRecipe(data="", output="", row_length=6144, learning_rate=1e-5, ema=0.0),
    ),
}


def random_samples(case: Case, count: int = 4000) -> list[Sample]:
    rng = np.random.default_rng(0)

    def words(size: int) -> list[int]:
        return rng.integers(10, 4096, size).tolist()

    return [make_sample(words(case.prompt), [*words(case.answer), 0], 0, 4) for _ in range(count)]


def milliseconds(work: Callable[[], object], count: int = 10) -> tuple[float, float]:
    """Of one call: the GPU's time, over ``count`` calls after two to warm up, and the host's with an idle GPU."""
    for _ in range(2):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        work()
    end.record()
    torch.cuda.synchronize()
    began = time.monotonic()
    work()
    host = time.monotonic() - began
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count, host * 1e3


def measure(case: Case, recipe: SftRecipe, samples: list[Sample], steps: int, profile: bool) -> None:
    began = time.monotonic()
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = SdarModel(case.config)
    model.reset_parameters(torch.Generator("cuda").manual_seed(0))
    trainer = Trainer(recipe, model, print, Path(recipe.output))
    feed = Feed(
        samples,
        trainer.noise,
        row_length=recipe.row_length,
        batch_rows=recipe.batch_rows,
        seed=0,
        pin=True,
    )
    loss = torch.zeros(())
    for _ in range(4):
        loss = trainer.step([feed.next()], 1.0)
    print(f"\n{recipe.optimizer}, {recipe.batch_rows} rows: ", end="")
    loss.item()
    print(f"first four steps {time.monotonic() - began:.1f} s", flush=True)
    waited, work = 0.0, Work()
    start = time.monotonic()
    for _ in range(steps):
        asked = time.monotonic()
        inputs = feed.next()
        waited += time.monotonic() - asked
        work += inputs.work
        loss = trainer.step([inputs], 1.0)
    host = time.monotonic() - start
    value = loss.item()
    seconds = time.monotonic() - start
    flops = training_flops(case.config, work) / seconds
    print(
        f"  {seconds / steps * 1e3:.1f} ms a step, {work.positions / seconds:,.0f} positions/s (with padding "
        f"{steps * recipe.batch_rows * recipe.row_length / seconds:,.0f}), {flops / 1e12:.0f} TFLOP/s, "
        f"MFU {flops / (peak_flops(trainer.device) or 1):.1%}\n"
        f"  the host {host / steps * 1e3:.1f} ms a step, of which waiting for data {waited / steps * 1e3:.2f} ms; "
        f"peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, loss {value:.3f}",
        flush=True,
    )
    if profile:
        breakdown(trainer, feed)
    feed.close()


def breakdown(trainer: Trainer, feed: Feed) -> None:
    inputs = feed.next().to(trainer.device)
    forward = trainer.forward

    def both() -> None:
        forward.loss_sum(inputs).backward()

    both()
    rows, length = inputs.ids.shape
    parts: dict[str, Callable[[], object]] = {
        "block mask, by blocks": lambda: block_mask(forward.codes, forward.block_size, forward.rule),
        "block mask, every pair": lambda: create_block_mask(
            forward.rule, rows, None, length, length, device="cuda"
        ),
        "one step, the same batch": lambda: trainer.step([inputs], 1.0),
        "forward": lambda: forward.loss_sum(inputs),
        "forward and backward": both,
        "clip": lambda: torch.nn.utils.clip_grad_norm_(trainer.weights.values(), 1.0),
        "AdamW": trainer.optimizers[0].step,
    }
    if len(trainer.optimizers) > 1:
        muon = trainer.optimizers[1]
        looped = torch.optim.Muon(muon.param_groups[0]["params"], adjust_lr_fn="match_rms_adamw")
        parts |= {"Muon, batched": muon.step, "Muon, torch's loop": looped.step}
    for name, work in parts.items():
        gpu, host = milliseconds(work)
        print(f"  {gpu:8.2f} ms, host {host:6.2f} ms  {name}", flush=True)
    with torch.profiler.profile() as profiled:
        for _ in range(3):
            trainer.step([feed.next()], 1.0)
        torch.cuda.synchronize()
    table = profiled.key_averages().table(
        sort_by="self_cuda_time_total", row_limit=40, max_name_column_width=70
    )
    kept = [line for line in table.splitlines() if "us" in line or "ms" in line or "Name" in line]
    for line in kept:
        cells = line.split("  ")
        cells = [cell.strip() for cell in cells if cell.strip()]
        print("  " + " | ".join([cells[0], *cells[-4:]]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=list(CASES), default="nano")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[16], help="rows a batch, one measurement each"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpointing", action="store_true", help="layers keep their input only")
    parser.add_argument("--profile", action="store_true", help="also print where the GPU's time goes")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("SKIP: torch sees no CUDA GPU")
        return
    torch.set_float32_matmul_precision("high")
    case = CASES[args.shape]
    samples = random_samples(case)
    with tempfile.TemporaryDirectory() as folder:
        for rows in args.rows:
            recipe = replace(case.recipe, output=folder, batch_rows=rows, checkpointing=args.checkpointing)
            measure(case, recipe, samples, args.steps, args.profile)


if __name__ == "__main__":
    main()
