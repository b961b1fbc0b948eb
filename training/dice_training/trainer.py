"""The training loop: noised batches, loss, optimizers, an average of the weights, and a state to go on from."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dice_engine.model.network import SdarModel
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from dice_training.checkpoint import Progress, load_state, save_state
from dice_training.feed import Feed, Inputs, Noise, Place, fingerprint, noised, take
from dice_training.forward import Forward
from dice_training.muon import Muon
from dice_training.packing import Sample, pack
from dice_training.recipe import RecipeError, SftRecipe

Report = Callable[[str], None]
LOG_EVERY = 50
SAVE_MINUTES = 10.0


class Trainer:
    """Trains ``model`` in place; :attr:`average` holds the exponential average of its weights."""

    def __init__(self, recipe: SftRecipe, model: SdarModel, report: Report, output: Path) -> None:
        self.recipe, self.model, self.report, self.output = recipe, model, report, output
        self.device = model.device
        self.cuda = self.device.type == "cuda"
        self.noise = Noise(model.config.mask_token_id, recipe.block_size, recipe.noise)
        shape = (recipe.batch_rows, recipe.row_length)
        self.forward = Forward(model, recipe.block_size, shape, compiled=self.cuda)
        self.optimizers = make_optimizers(model, recipe, fused=self.cuda)
        self.weights: dict[str, Tensor] = dict(model.named_parameters())
        self.average = {name: tensor.detach().clone() for name, tensor in self.weights.items()}
        self.progress = Progress()
        self.stopping = False

    def resume(self) -> None:
        """Go on from the state in the output folder."""
        self.progress = load_state(self.output, self.weights, self.average, self.optimizers)
        self.report(f"resumed at step {self.progress.step}, {self.progress.seconds / 60:.1f} minutes")

    def run(self, samples: list[Sample], test_samples: list[Sample], stop_after: float | None = None) -> None:
        """Train until the recipe's end, ``stop_after`` minutes, or a signal; then save the state and evaluate."""
        size = sum(p.numel() for p in self.weights.values())
        self.report(f"{size / 1e6:.1f} M parameters on {self.device}, {self.recipe.steps} steps")
        data = fingerprint(samples)
        if self.progress.data and data != self.progress.data:
            self.report("the data differs from before: it is read from its start")
        place = self.progress.place if data == self.progress.data else Place()
        recipe = self.recipe
        feed = Feed(
            samples,
            self.noise,
            row_length=recipe.row_length,
            batch_rows=recipe.batch_rows,
            seed=recipe.seed,
            place=place,
            pin=self.cuda,
        )
        with self._signals():
            try:
                self._loop(feed, data, stop_after)
            finally:
                feed.close()
            self._save()
        if test_samples:
            self.swap_average()
            self.report(f"held-out loss {self.evaluate(test_samples):.4f}")
            self.swap_average()

    def _loop(self, feed: Feed, data: str, stop_after: float | None) -> None:
        recipe, first = self.recipe, self.progress
        start = lap = saved = time.monotonic()
        lap_step = first.step
        self.output.mkdir(parents=True, exist_ok=True)
        with (self.output / "log.jsonl").open("a" if first.step else "w") as log:
            for step in range(first.step, recipe.steps):
                now = time.monotonic()
                if step == first.step + 1:  # the first step compiles; the schedule's clock starts after it
                    start = now
                spent = now - start
                seconds = first.seconds + spent
                done = max(
                    step / recipe.steps, seconds / 60 / recipe.max_minutes if recipe.max_minutes else 0.0
                )
                late = stop_after is not None and step > first.step and spent >= stop_after * 60
                if done >= 1 or self.stopping or late:
                    break
                rate = schedule(done, recipe.warmup, recipe.decay)
                loss = self.step([feed.next() for _ in range(recipe.accumulate)], rate)
                self.progress = Progress(step + 1, seconds, feed.place, data)
                if step % LOG_EVERY == 0 or step == recipe.steps - 1:
                    value = loss.item()
                    if not np.isfinite(value):
                        raise RecipeError(f"step {step}: the loss is {value}; lower learning_rate")
                    now = time.monotonic()
                    positions = (
                        (step + 1 - lap_step) * recipe.accumulate * recipe.batch_rows * recipe.row_length
                    )
                    speed = positions / (now - lap)
                    lap, lap_step = now, step + 1
                    entry = {"step": step, "loss": value, "rate": rate, "positions_per_s": speed}
                    log.write(json.dumps(entry) + "\n")
                    log.flush()
                    self.report(f"step {step}  loss {value:.4f}  rate {rate:.2e}  {speed:,.0f} positions/s")
                    if now - saved > SAVE_MINUTES * 60:
                        self._save()
                        saved = time.monotonic()

    def step(self, parts: list[Inputs], rate: float) -> Tensor:
        """One update from ``parts``, at the share ``rate`` of the peak learning rates. Returns the loss."""
        answers = sum(part.answers for part in parts)
        total = torch.zeros((), device=self.device)
        for part in parts:
            loss = self.forward.loss_sum(part.to(self.device)) / answers
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            update = get_ema_multi_avg_fn(self.recipe.ema)
            update(list(self.average.values()), list(self.weights.values()), 0)
        return total

    def evaluate(self, samples: list[Sample]) -> float:
        """Mean loss of ``samples`` under noise that is always the same, over whole batches (at least one)."""
        rows = pack(samples, self.recipe.row_length, self.recipe.block_size)
        size = self.recipe.batch_rows
        rows = take(rows, np.resize(np.arange(len(rows)), max(size, len(rows) // size * size)))
        losses = []
        for start in range(0, len(rows), size):
            part = noised(take(rows, np.arange(start, start + size)), self.noise, (0, start))
            # With gradients on: without them everything would be compiled once more.
            losses.append(self.forward.loss_sum(part.to(self.device)).item() / part.answers)
        return float(np.mean(losses))

    def swap_average(self) -> None:
        """Exchange the weights and their average."""
        for name, parameter in self.weights.items():
            parameter.data, self.average[name] = self.average[name], parameter.data

    def _save(self) -> None:
        save_state(self.output, self.weights, self.average, self.optimizers, self.progress)
        self.report(f"state saved at step {self.progress.step}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the loop after the step in progress; a second one ends the process as usual."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {
            number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
        }

        def stop(number: int, frame: object) -> None:
            self.stopping = True
            signal.signal(number, before[number])
            self.report("stopping after this step")

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


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
        muon = Muon(inner, lr=rate, weight_decay=decay)
        muon.param_groups[0]["peak"] = rate
        optimizers.append(muon)
    return optimizers


def schedule(done: float, warmup: float, decay: float) -> float:
    """The share of the peak rate when a share ``done`` of the run is behind: up, flat, then linearly to zero."""
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return min(1.0, (1.0 - done) / decay) if decay else 1.0
