"""The training loop: noised batches, loss, optimizers, an average of the weights, and a state to go on from."""

from __future__ import annotations

import contextlib
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
from dice_engine.model.weights import save_folder
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from dice_training.checkpoint import Progress, load_state, named, save_state
from dice_training.feed import Feed, Inputs, Noise, Place, fingerprint, noised, take
from dice_training.forward import Forward
from dice_training.log import Log
from dice_training.lora import merged
from dice_training.masks import TILE
from dice_training.optimizers import make_optimizers, schedule
from dice_training.packing import Sample, pack
from dice_training.ranks import ALONE, Ranks
from dice_training.recipe import RecipeError, SftRecipe
from dice_training.scoring import pass_at_1
from dice_training.sharded_state import ShardedState, begin
from dice_training.sharding import cut_again, filled, gathered, shard
from dice_training.speed import Work, peak_flops, training_flops

Report = Callable[[str], None]
LOG_EVERY, LOG_SECONDS = 50, 10.0
"""A line after so many steps, or so long."""
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
SAVE_MINUTES = 10.0


class Trainer:
    """Trains ``model`` in place; :attr:`average` holds the average of its weights, empty with ``ema`` 0."""

    def __init__(
        self,
        recipe: SftRecipe,
        model: SdarModel,
        report: Report,
        output: Path,
        ranks: Ranks = ALONE,
        device: torch.device | None = None,
    ) -> None:
        """``model`` is on ``device``; to be sharded it may be elsewhere, and empty in all processes but the first."""
        self.recipe, self.model, self.report, self.output = recipe, model, report, output
        self.ranks = ranks
        self.device = device or model.device
        self.cuda = self.device.type == "cuda"
        if self.cuda and recipe.row_length % TILE:
            raise RecipeError(f"row_length is {recipe.row_length}; on a GPU it must be a multiple of {TILE}")
        if recipe.accumulate % ranks.count:
            raise RecipeError(
                f"accumulate is {recipe.accumulate}: {ranks.count} processes cannot share a step's batches evenly; "
                f"make it a multiple of {ranks.count}, and batch_rows smaller for the same step"
            )
        self.noise = Noise(model.config.mask_token_id, recipe.block_size, recipe.noise)
        shape = (recipe.batch_rows, recipe.row_length)
        self.forward = Forward(model, recipe.block_size, shape, self.device, recipe.checkpointing)
        if recipe.shard:
            self.hollow = shard(self.forward, recipe.offload)
            self.states = ShardedState(output)
        self.optimizers = make_optimizers(model, recipe, fused=self.cuda)
        self.weights: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.average = {n: p.detach().clone() for n, p in self.weights.items()} if recipe.ema else {}
        self.progress = Progress()
        self.stopping = False

    def resume(self) -> None:
        """Go on from the state in the output folder."""
        state = (self.weights, self.average, self.optimizers)
        if self.recipe.shard:
            begin(self.optimizers)
            self.progress = self.states.load(named(*state))
        else:
            self.progress = load_state(self.output, *state)
        self.report(f"resumed at step {self.progress.step}, {self.progress.seconds / 60:.1f} minutes")

    def run(self, samples: list[Sample], test_samples: list[Sample], stop_after: float | None = None) -> None:
        """Train until the recipe's end, ``stop_after`` minutes, or a signal; then save and evaluate."""
        recipe = self.recipe
        size = sum(p.numel() for p in self.model.parameters())
        self.report(f"{size / 1e6:.1f} M parameters on {self.device}, {recipe.steps} steps")
        data = fingerprint(samples)
        if self.progress.data and data != self.progress.data:
            self.report("the data differs from before: it is read from its start")
        feed = Feed(
            samples,
            self.noise,
            row_length=recipe.row_length,
            batch_rows=recipe.batch_rows,
            seed=recipe.seed,
            place=self.progress.place if data == self.progress.data else Place(),
            ranks=self.ranks,
            pin=self.cuda,
        )
        if self.cuda:  # what was needed to make the model is not what it needs
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        self.log = Log(self.output, self.progress.step) if self.ranks.first else None
        closing = contextlib.closing(self.log) if self.log else contextlib.nullcontext()
        with self._signals(), contextlib.closing(feed), closing:
            self._loop(feed, test_samples, data, stop_after)
            self._save()
            self.save_average()
            self._evaluate(test_samples)
            if self.recipe.shard:
                self.states.wait()

    def _loop(self, feed: Feed, test_samples: list[Sample], data: str, stop_after: float | None) -> None:
        recipe, first = self.recipe, self.progress
        start = lap = saved = time.monotonic()
        work = Work()
        for step in range(first.step, recipe.steps):
            now = time.monotonic()
            if step == first.step + 1:  # the first step compiles; the schedule's clock starts after it
                start = now
            spent = now - start
            seconds = first.seconds + spent
            by_clock = seconds / 60 / recipe.max_minutes if recipe.max_minutes else 0.0
            done = max(step / recipe.steps, by_clock)
            late = stop_after is not None and step > first.step and spent >= stop_after * 60
            stop = done >= 1 or self.stopping or late
            save = step % recipe.save_every == 0 if recipe.save_every else now - saved > SAVE_MINUTES * 60
            tell = step % LOG_EVERY == 0 or step == recipe.steps - 1 or now - lap > LOG_SECONDS
            done, stop, save, tell = self.ranks.agreed(done, stop, save and step > first.step, tell)
            if stop:
                break
            if save:
                self._save()
                saved = time.monotonic()
            rate = schedule(done, recipe.warmup, recipe.decay)
            parts = [feed.next() for _ in range(recipe.accumulate // self.ranks.count)]
            loss = self.step(parts, rate)
            work = sum((part.work for part in parts), work)
            self.progress = Progress(step + 1, seconds, feed.place, data)
            if tell:
                value = loss.item()
                if not np.isfinite(value):
                    raise RecipeError(f"step {step}: the loss is {value}; lower learning_rate")
                now = time.monotonic()
                self._tell(step, value, rate, work, now - lap)
                lap, work = now, Work()
            if recipe.eval_every and (step + 1) % recipe.eval_every == 0 and step + 1 < recipe.steps:
                began = time.monotonic()
                self._evaluate(test_samples)
                paused = time.monotonic() - began
                start, lap = start + paused, lap + paused

    def _tell(self, step: int, loss: float, rate: float, work: Work, seconds: float) -> None:
        """``work`` is this process's; what is told is that of all of them, and the MFU of one GPU."""
        work = Work(*self.ranks.total(torch.tensor([work.positions, work.pairs, work.hidden])).tolist())
        speed = work.positions / seconds
        entry = {"step": step, "loss": loss, "rate": rate, "positions_per_s": speed}
        line = f"step {step}  loss {loss:.4f}  rate {rate:.3f}  {speed:,.0f} positions/s"
        peak = peak_flops(self.device)
        if peak:
            entry["mfu"] = training_flops(self.model.config, work) / seconds / peak / self.ranks.count
            entry["gpu_bytes"] = torch.cuda.max_memory_allocated(self.device)
            line += f"  MFU {entry['mfu']:.1%}  {entry['gpu_bytes'] / 1e9:.1f} GB"
        if self.log:
            self.log.add(entry)
        self.report(line)

    def _evaluate(self, test_samples: list[Sample]) -> None:
        """Score the average of the weights: held-out loss by noise level and, where the recipe says so, pass@1."""
        recipe = self.recipe
        entry: dict[str, float] = {}
        line = f"step {self.progress.step}"
        if test_samples:
            self.swap_average()
            losses = self.evaluate(test_samples)
            self.swap_average()
            entry["held_out"] = sum(losses.values()) / len(losses)
            entry |= {f"held_out/{level}": loss for level, loss in losses.items()}
            by_level = ", ".join(f"{loss:.3f} at {level}" for level, loss in losses.items())
            line += f"  held-out loss {entry['held_out']:.4f} ({by_level})"
        if recipe.pass_file is not None:
            self.save_average()
        if recipe.pass_file is not None and self.ranks.first:
            entry["pass@1"] = pass_at_1(
                self.output, Path(recipe.pass_file), recipe.pass_rows, "cuda" if self.cuda else "cpu"
            )
            line += f"  pass@1 {entry['pass@1']:.1%}"
        if entry and self.log:
            self.log.add({"step": self.progress.step - 1, **entry})
            self.report(line)

    def step(self, parts: list[Inputs], rate: float) -> Tensor:
        """One update from ``parts`` and those of the other processes, at the share ``rate`` of the peak learning
        rates. Returns the loss."""
        # Counted on the host: a number made on the GPU would wait for all that is queued there.
        answers = int(self.ranks.total(torch.tensor(sum(part.answers for part in parts))))
        total = torch.zeros((), device=self.device)
        for part in parts:
            loss = self.forward.loss_sum(part.to(self.device)) / answers
            loss.backward()
            total += loss.detach()
        if not self.recipe.shard:  # there it is done layer by layer in the backward pass
            self.ranks.add_gradients(self.weights.values())
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.average:
            update = get_ema_multi_avg_fn(self.recipe.ema)  # it runs without gradients
            update(list(self.average.values()), list(self.weights.values()), 0)
        return self.ranks.total(total)

    def evaluate(self, samples: list[Sample]) -> dict[float, float]:
        """Cross-entropy a hidden token at each of :data:`LEVELS` of noise, over whole batches of rows (at least one).

        The draws are always the same, and the mean over the levels is the objective by the midpoint rule.
        """
        rows = pack(samples, self.recipe.row_length, self.recipe.block_size)
        size = self.recipe.batch_rows
        rows = take(rows, np.resize(np.arange(len(rows)), max(size, len(rows) // size * size)))
        count, rank = self.ranks.count, self.ranks.rank
        losses = {}
        for level in LEVELS:
            sums = torch.zeros(2, dtype=torch.float64)
            for turn in range(0, len(rows), size * count):
                # Where the last turn has no batch for this process, it does the last one for nothing: in a forward
                # pass of sharded weights all must take part.
                mine = turn + rank * size
                start = min(mine, len(rows) - size)
                part = noised(take(rows, np.arange(start, start + size)), self.noise, (0, start), level)
                # With gradients on: without them everything would be compiled once more.
                loss = self.forward.loss_sum(part.to(self.device)).item()
                if start == mine:
                    sums += torch.tensor([loss, part.work.hidden])
            loss, hidden = self.ranks.total(sums).tolist()
            losses[level] = loss * level / hidden  # each weighs 1 / level in the sum
        if self.recipe.shard:
            cut_again(self.model)
        return losses

    def swap_average(self) -> None:
        """Exchange the weights and their average, where there is one."""
        with torch.no_grad():
            for name, average in self.average.items():
                weight = self.weights[name]
                kept = weight.clone()
                weight.copy_(average)
                average.copy_(kept)

    def save_average(self) -> None:
        """The average as a checkpoint folder; the tokenizer is there already."""
        self.swap_average()
        with contextlib.ExitStack() as stack:
            model = self.model
            if self.recipe.shard:
                weights = gathered(model, self.ranks.first)
                model = stack.enter_context(filled(self.hollow, weights)) if self.ranks.first else model
            if self.ranks.first:
                plain = stack.enter_context(merged(model))
                save_folder(plain, self.output, dtype=torch.bfloat16, quantize=self.recipe.quantize)
        self.swap_average()

    def _save(self) -> None:
        state = (self.weights, self.average, self.optimizers)
        if self.recipe.shard:
            self.states.save(named(*state), self.progress)
        elif self.ranks.first:
            save_state(self.output, *state, self.progress)
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
