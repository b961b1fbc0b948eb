"""Supervised fine-tuning by the block-diffusion objective: ``dice train sft RECIPE.toml``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import SPECIALS
from dice_engine.model.weights import load_model, save_folder
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.optim.swa_utils import get_ema_multi_avg_fn

from dice_training.data import build_dataset, read_rows, texts
from dice_training.objective import Batch, corrupt, dense_visibility, diffusion_loss, visibility
from dice_training.packing import Rows, Sample, batches, pack
from dice_training.recipe import RecipeError, SftRecipe
from dice_training.tokenizer import save_tokenizer, train_tokenizer

Report = Callable[[str], None]
TOKENIZER_ROWS = 20_000
HELD_OUT_ROWS = 256
LOG_EVERY = 50


def train(recipe: SftRecipe, report: Report) -> Path:
    """Run ``recipe`` and return the checkpoint folder. ``report`` gets one line of progress at a time."""
    torch.manual_seed(recipe.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    output = Path(recipe.output)
    every = list(read_rows(Path(recipe.data)))
    rows = [row for row in every if row["split"] == "train"]
    held_out = [row for row in every if row["split"] == "test"][:HELD_OUT_ROWS]
    if not rows:
        raise RecipeError(f"{recipe.data}: no rows with split 'train'")
    model, tokenizer_folder = _start(recipe, rows, output)
    workers = min(16, os.cpu_count() or 1) if len(rows) > 5000 else 1

    def dataset(part: list[dict[str, object]]) -> list[Sample]:
        built = build_dataset(
            part,
            tokenizer_folder,
            block_size=recipe.block_size,
            context=model.config.max_position_embeddings,
            row_length=recipe.row_length,
            workers=workers,
        )
        report(f"{len(built.samples)} samples, {built.dropped} too long and left out")
        return built.samples

    samples, test_samples = dataset(rows), dataset(held_out)
    trainer = Trainer(recipe, model.to(device), report, output)
    trainer.run(samples, test_samples)
    model.load_state_dict(trainer.average)
    save_folder(model, output, dtype=torch.bfloat16, quantize=recipe.quantize)
    (output / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2))
    report(f"saved {output}")
    return output


def _start(recipe: SftRecipe, rows: list[dict[str, object]], output: Path) -> tuple[SdarModel, Path]:
    """The model to train and the folder that holds its tokenizer (written to ``output`` as well)."""
    if recipe.init is not None:
        folder = Path(recipe.init)
        save_tokenizer_copy(folder, output)
        return load_model(folder, device="cpu", dtype=torch.float32).requires_grad_(True).train(), folder
    if recipe.tokenizer is not None:
        save_tokenizer_copy(Path(recipe.tokenizer), output)
    else:
        save_tokenizer(train_tokenizer(texts(rows[:TOKENIZER_ROWS]), recipe.shape.vocab), output)
    shape = recipe.shape
    config = SdarConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        block_size=recipe.block_size,
        mask_token_id=SPECIALS.index("<|mask|>"),
        eos_token_ids=(SPECIALS.index("<|endoftext|>"),),
        pad_token_id=SPECIALS.index("<|pad|>"),
        rope_theta=1e4,
        dice={"format": "fim"},
    )
    model = SdarModel(config)
    model.reset_parameters(torch.Generator().manual_seed(recipe.seed))
    return model, output


def save_tokenizer_copy(source: Path, output: Path) -> None:
    try:
        content = (source / "tokenizer.json").read_bytes()
    except OSError as error:
        raise RecipeError(f"{source}: no readable tokenizer.json there ({error.strerror})") from error
    output.mkdir(parents=True, exist_ok=True)
    (output / "tokenizer.json").write_bytes(content)


class Trainer:
    """The loop: packed rows, corruption, loss, AdamW, and an exponential average of the weights."""

    def __init__(self, recipe: SftRecipe, model: SdarModel, report: Report, output: Path) -> None:
        self.recipe, self.model, self.report, self.output = recipe, model, report, output
        self.device = model.device
        self.cuda = self.device.type == "cuda"
        self.optimizers = make_optimizers(model, recipe, fused=self.cuda)
        self.average = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self.generator = torch.Generator(self.device).manual_seed(recipe.seed)
        self.rng = np.random.default_rng(recipe.seed)
        shape = (recipe.batch_rows, recipe.row_length)
        # One set of buffers for every batch: the mask function closes over them, so nothing is compiled twice.
        self.batch = Batch(
            *(torch.zeros(shape, dtype=torch.long, device=self.device) for _ in range(3)),
            *(torch.zeros(shape, dtype=torch.bool, device=self.device) for _ in range(2)),
        )
        self.mask_mod = visibility(self.batch, recipe.block_size)
        self.hidden = torch.compile(self._hidden) if self.cuda else self._hidden
        self.make_mask = torch.compile(create_block_mask) if self.cuda else create_block_mask

    def run(self, samples: list[Sample], test_samples: list[Sample]) -> None:
        recipe = self.recipe
        self.output.mkdir(parents=True, exist_ok=True)
        size = sum(p.numel() for p in self.model.parameters())
        self.report(f"{size / 1e6:.1f} M parameters on {self.device}, {recipe.steps} steps")
        start = lap = time.monotonic()
        feed = self._feed(samples)
        with (self.output / "log.jsonl").open("w") as log:
            for step in range(recipe.steps):
                if step == 1:  # the first step compiles; the schedule's clock starts after it
                    start = time.monotonic()
                minutes = (time.monotonic() - start) / 60
                done = max(step / recipe.steps, minutes / recipe.max_minutes if recipe.max_minutes else 0.0)
                if done >= 1:
                    break
                rate = schedule(done, recipe.warmup, recipe.decay)
                loss = self._step([next(feed) for _ in range(recipe.accumulate)], rate)
                if step % LOG_EVERY == 0 or step == recipe.steps - 1:
                    value = loss.item()
                    if not np.isfinite(value):
                        raise RecipeError(f"step {step}: the loss is {value}; lower learning_rate")
                    now = time.monotonic()
                    steps = min(step, LOG_EVERY) or 1
                    positions = steps * recipe.accumulate * recipe.batch_rows * recipe.row_length
                    entry = {
                        "step": step,
                        "loss": value,
                        "rate": rate,
                        "positions_per_s": positions / (now - lap),
                    }
                    lap = now
                    log.write(json.dumps(entry) + "\n")
                    log.flush()
                    self.report(
                        f"step {step}  loss {value:.4f}  rate {rate:.2e}  {entry['positions_per_s']:,.0f} positions/s"
                    )
        if test_samples:
            self.model.load_state_dict(self.average)
            held_out = self.evaluate(test_samples)
            self.report(f"held-out loss {held_out:.4f}")

    def _feed(self, samples: list[Sample]) -> Iterator[Rows]:
        """Batches of packed rows for ever, packed anew in another order each epoch."""
        recipe = self.recipe

        def epoch(order: np.ndarray) -> Rows:
            return pack([samples[i] for i in order], recipe.row_length, recipe.block_size)

        with ThreadPoolExecutor(1) as background:  # the next epoch is packed while this one trains
            following = background.submit(epoch, self.rng.permutation(len(samples)))
            while True:
                rows = following.result()
                following = background.submit(epoch, self.rng.permutation(len(samples)))
                copies = -(-recipe.batch_rows // len(rows))  # a data set smaller than a batch is repeated
                rows = _take(rows, np.tile(np.arange(len(rows)), copies))
                for index in batches(len(rows), recipe.batch_rows, self.rng):
                    yield _take(rows, index)

    def _step(self, parts: list[Rows], rate: float) -> Tensor:
        """One update from ``parts``, at the share ``rate`` of the peak learning rates. Returns the loss."""
        answers = max(1, sum(int(part.answer.sum()) for part in parts))
        total = torch.zeros((), device=self.device)
        for part in parts:
            loss = self._loss(part, answers)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self._average()
        return total

    def _loss(self, part: Rows, answers: int) -> Tensor:
        for buffer, array in zip(vars(self.batch).values(), vars(part).values(), strict=True):
            buffer.copy_(torch.from_numpy(array), non_blocking=True)
        noised = corrupt(
            self.batch,
            mask_id=self.model.config.mask_token_id,
            block_size=self.recipe.block_size,
            level=self.recipe.noise,
            generator=self.generator,
        )
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.cuda):
            hidden = self.hidden(noised.ids, self.batch.position, self._mask())
            logits = self.model.head(hidden[noised.hidden])
        return diffusion_loss(logits, self.batch.ids[noised.hidden], noised.weight[noised.hidden], answers)

    def _hidden(self, ids: Tensor, position: Tensor, mask: Tensor | BlockMask) -> Tensor:
        return self.model.backbone(ids, positions=position, attend=mask)

    def _mask(self) -> Tensor | BlockMask:
        if not self.cuda:
            return dense_visibility(self.batch, self.recipe.block_size)
        rows, length = self.batch.ids.shape
        return self.make_mask(self.mask_mod, rows, None, length, length, device=self.device)

    @torch.no_grad()
    def _average(self) -> None:
        state = self.model.state_dict()
        update = get_ema_multi_avg_fn(self.recipe.ema)
        update(list(self.average.values()), [state[name] for name in self.average], 0)

    @torch.no_grad()
    def evaluate(self, samples: list[Sample]) -> float:
        """Mean loss of ``samples``, over as many whole batches as they fill (at least one)."""
        rows = pack(samples, self.recipe.row_length, self.recipe.block_size)
        size = self.recipe.batch_rows
        rows = _take(rows, np.resize(np.arange(len(rows)), max(size, len(rows) // size * size)))
        losses = []
        for start in range(0, len(rows), size):
            part = _take(rows, np.arange(start, start + size))
            losses.append(self._loss(part, int(part.answer.sum())).item())
        return float(np.mean(losses))


def make_optimizers(model: SdarModel, recipe: SftRecipe, fused: bool) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the layers' matrices and AdamW for the rest; ``peak`` is each group's rate."""
    inner = [p for name, p in model.named_parameters() if p.dim() == 2 and ".layers." in name]
    outer = [p for name, p in model.named_parameters() if p.dim() == 2 and ".layers." not in name]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    rate, decay = recipe.learning_rate, recipe.weight_decay
    adam_rate = rate if recipe.optimizer == "adamw" else recipe.adam_rate
    groups = [
        {"params": outer, "weight_decay": decay, "peak": adam_rate},
        {"params": vectors, "weight_decay": 0.0, "peak": adam_rate},
    ]
    if recipe.optimizer == "adamw":
        groups.append({"params": inner, "weight_decay": decay, "peak": adam_rate})
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(groups, lr=adam_rate, betas=(0.9, 0.95), fused=fused)
    ]
    if recipe.optimizer == "muon":
        # Updates scaled to the size of AdamW's, so that rates mean about the same (arXiv 2502.16982).
        muon = torch.optim.Muon(inner, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
        muon.param_groups[0]["peak"] = rate
        optimizers.append(muon)
    return optimizers


def schedule(done: float, warmup: float, decay: float) -> float:
    """The share of the peak rate when a share ``done`` of the run is behind: up, flat, then linearly to zero."""
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return min(1.0, (1.0 - done) / decay) if decay else 1.0


def _take(rows: Rows, index: np.ndarray) -> Rows:
    return Rows(*(array[index] for array in vars(rows).values()))
