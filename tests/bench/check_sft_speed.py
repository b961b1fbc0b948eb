"""Speed of nano's SFT step on this machine's GPU, on random samples: positions/s, where a step's time goes, and what
the plain ways cost (a loop over Muon's matrices, a block mask from trying every pair)."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_training.feed import Feed
from dice_training.masks import block_mask
from dice_training.packing import Sample, make_sample
from dice_training.recipe import SftRecipe
from dice_training.trainer import Trainer
from torch.nn.attention.flex_attention import create_block_mask

NANO = SdarConfig(4096, 512, 1536, 8, 8, 4, head_dim=64, tie_word_embeddings=True, mask_token_id=1)


def random_samples(count: int) -> list[Sample]:
    """700 tokens each, of which 250 are the answer: about what a CuKe row has."""
    rng = np.random.default_rng(0)
    return [
        make_sample(rng.integers(10, 4096, 450).tolist(), [*rng.integers(10, 4096, 250).tolist(), 0], 0, 4)
        for _ in range(count)
    ]


def milliseconds(work: Callable[[], object], count: int = 10) -> float:
    """GPU time of one call, over ``count`` calls after two to warm up."""
    for _ in range(2):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count


def measure(recipe: SftRecipe, samples: list[Sample], steps: int, half: bool, profile: bool) -> None:
    began = time.monotonic()
    torch.cuda.reset_peak_memory_stats()
    model = SdarModel(NANO)
    model.reset_parameters(torch.Generator().manual_seed(0))
    trainer = Trainer(recipe, model.cuda(), print, Path(recipe.output))
    if half:
        model.model.embed_tokens.register_forward_hook(lambda module, given, out: out.bfloat16())
    feed = Feed(
        samples,
        trainer.noise,
        row_length=recipe.row_length,
        batch_rows=recipe.batch_rows,
        seed=0,
        pin=True,
    )
    for _ in range(4):
        loss = trainer.step([feed.next()], 1.0)
    print(f"\n{recipe.optimizer}, {recipe.batch_rows} rows{', bf16 residual' if half else ''}: ", end="")
    loss.item()
    print(f"first four steps {time.monotonic() - began:.1f} s", flush=True)
    waited = 0.0
    start = time.monotonic()
    for _ in range(steps):
        asked = time.monotonic()
        inputs = feed.next()
        waited += time.monotonic() - asked
        loss = trainer.step([inputs], 1.0)
    host = time.monotonic() - start
    value = loss.item()
    seconds = time.monotonic() - start
    print(
        f"  {seconds / steps * 1e3:.1f} ms a step, {steps * inputs.ids.numel() / seconds:,.0f} positions/s; the host "
        f"{host / steps * 1e3:.1f} ms, of which waiting for data {waited / steps * 1e3:.2f} ms; "
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
    muon = trainer.optimizers[-1]
    looped = torch.optim.Muon(muon.param_groups[0]["params"], adjust_lr_fn="match_rms_adamw")
    rows, length = inputs.ids.shape
    parts: dict[str, Callable[[], object]] = {
        "block mask, by blocks": lambda: block_mask(forward.codes, forward.block_size, forward.rule),
        "block mask, every pair": lambda: create_block_mask(
            forward.rule, rows, None, length, length, device="cuda"
        ),
        "forward": lambda: forward.loss_sum(inputs),
        "forward and backward": both,
        "clip": lambda: torch.nn.utils.clip_grad_norm_(trainer.weights.values(), 1.0),
        "AdamW (embedding, norms)": trainer.optimizers[0].step,
        "Muon, batched": muon.step,
        "Muon, torch's loop": looped.step,
    }
    for name, work in parts.items():
        print(f"  {milliseconds(work):8.2f} ms  {name}", flush=True)
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
    parser.add_argument("--rows", type=int, nargs="+", default=[16])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--half", action="store_true", help="also with the residual stream in bf16")
    parser.add_argument("--profile", action="store_true", help="also print where the GPU's time goes")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    samples = random_samples(4000)
    with tempfile.TemporaryDirectory() as folder:
        recipe = SftRecipe(data="", output=folder, row_length=args.length, noise="block", optimizer="muon")
        for rows in args.rows:
            measure(replace(recipe, batch_rows=rows), samples, args.steps, False, args.profile)
            if args.half:
                torch._dynamo.reset()
                measure(replace(recipe, batch_rows=rows), samples, args.steps, True, False)


if __name__ == "__main__":
    main()
