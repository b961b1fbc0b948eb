"""Positions a second of nano's SFT step on this machine's GPU, on random samples; prints one line a setting."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_training.packing import make_sample
from dice_training.recipe import SftRecipe
from dice_training.sft import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[16])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--profile", action="store_true", help="print where the GPU's time goes")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    rng = np.random.default_rng(0)
    samples = [
        make_sample(rng.integers(10, 4096, 450).tolist(), [*rng.integers(10, 4096, 250).tolist(), 0], 0, 4)
        for _ in range(4000)
    ]
    config = SdarConfig(4096, 512, 1536, 8, 8, 4, head_dim=64, tie_word_embeddings=True, mask_token_id=1)
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as folder:
            recipe = SftRecipe(
                data="",
                output=folder,
                row_length=args.length,
                batch_rows=rows,
                noise="block",
                optimizer="muon",
            )
            model = SdarModel(config)
            model.reset_parameters()
            trainer = Trainer(recipe, model.cuda(), print, Path(folder))
            feed = trainer._feed(samples)
            start = time.monotonic()
            for _ in range(5):
                loss = trainer._step([next(feed)], 1.0)
            torch.cuda.synchronize()
            warm = time.monotonic() - start
            start = time.monotonic()
            for _ in range(args.steps):
                loss = trainer._step([next(feed)], 1.0)
            value = loss.item()
            seconds = time.monotonic() - start
            rate = args.steps * rows * args.length / seconds
            memory = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"rows {rows}: {rate:,.0f} positions/s, {seconds / args.steps * 1e3:.1f} ms a step, "
                f"first five steps {warm:.1f} s, peak {memory:.1f} GiB, loss {value:.3f}",
                flush=True,
            )
            if args.profile:
                with torch.profiler.profile() as profile:
                    for _ in range(3):
                        trainer._step([next(feed)], 1.0)
                    torch.cuda.synchronize()
                events = profile.key_averages()
                print(events.table(sort_by="self_cuda_time_total", row_limit=22, max_name_column_width=60))


if __name__ == "__main__":
    main()
