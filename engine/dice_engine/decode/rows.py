"""What is known of the candidates of a batch, on the device: each row is at a masked block of its reply.

The whole state machine is tensor operations of fixed shapes without a look from the host, so that a pass (network,
drawing, unmasking, going on to the next block) can be captured in one CUDA graph. What happened is written to
``record``, which the host reads later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dice_engine.decode.sampling import Needs, counter_noise, draw
from dice_engine.decode.strategies import DecodeOptions, choose
from dice_engine.decode.upload import uploaded

MAX_STOP_IDS = 8
SCALARS = ("start", "step", "fresh", "active", "prompt_end", "limit", "seed", "strategy", "steps", "top_k")
_FLOATS = ("temperature", "threshold", "gamma", "top_p")
COMPLETE, FINISHED, STOPPED, END, BROKEN, LIVE, HEAD = range(7)
"""Columns of ``record``: the block is complete; with it the reply is; a stop token ended it; positions of the block
that count; not-a-number logits; the row took part; then B tokens and B steps."""


@dataclass(frozen=True)
class NewRow:
    """A candidate that joins: its first block holds the ``tail`` of the prompt that fills no block."""

    start: int
    tail: Sequence[int]
    limit: int
    """Absolute position at which the reply ends at the latest."""
    seed: int
    temperature: float
    options: DecodeOptions
    stop_ids: Sequence[int]


class Rows:
    """State of ``count`` rows: names of ``SCALARS`` int64 ``[rows]``, of ``_FLOATS`` float32 ``[rows]``; ``before``,
    ``block``, ``masked`` (0 or 1) and ``when`` int64 ``[rows, B]``; ``stop_ids`` int64 ``[rows, 8]``, unused ones -1.

    ``fresh``: the block before the current one is complete, but its keys and values are not in the cache yet.
    """

    def __init__(self, count: int, block_size: int, mask_id: int, device: torch.device) -> None:
        self.count, self.size, self.mask_id, self.device = count, block_size, mask_id, device
        width = len(SCALARS) + MAX_STOP_IDS + 4 * block_size
        self.whole = torch.zeros(count, width, dtype=torch.int64, device=device)
        self.real = torch.zeros(count, len(_FLOATS), dtype=torch.float32, device=device)
        self.record = torch.zeros(count, HEAD + 2 * block_size, dtype=torch.int64, device=device)
        self._name()
        self.steps.fill_(1)  # quotas are computed for every row, and divide by it

    def _name(self) -> None:
        for i, name in enumerate(SCALARS):
            setattr(self, name, self.whole[:, i])
        for i, name in enumerate(_FLOATS):
            setattr(self, name, self.real[:, i])
        parts = self.whole[:, len(SCALARS) + MAX_STOP_IDS :].split(self.size, 1)
        self.before, self.block, self.masked, self.when = parts
        self.stop_ids = self.whole[:, len(SCALARS) :][:, :MAX_STOP_IDS]

    start: Tensor
    step: Tensor
    fresh: Tensor
    active: Tensor
    prompt_end: Tensor
    limit: Tensor
    seed: Tensor
    strategy: Tensor
    steps: Tensor
    top_k: Tensor
    temperature: Tensor
    threshold: Tensor
    gamma: Tensor
    top_p: Tensor

    def first(self, count: int) -> Rows:
        """A view of the first ``count`` rows: what is done to it is done here."""
        view = object.__new__(Rows)
        view.count, view.size, view.mask_id, view.device = count, self.size, self.mask_id, self.device
        view.whole, view.real, view.record = self.whole[:count], self.real[:count], self.record[:count]
        view._name()
        return view

    def put(self, places: Sequence[int], rows: Sequence[NewRow]) -> None:
        whole, real = [], []
        for row in rows:
            o, size, tail = row.options, self.size, list(row.tail)
            if len(row.stop_ids) > MAX_STOP_IDS:
                raise ValueError(f"at most {MAX_STOP_IDS} stop ids, not {len(row.stop_ids)}")
            seed = row.seed & (2**63 - 1)
            scalars = [row.start, 0, 0, 1, row.start + len(tail), row.limit, seed, o.number]
            scalars += [o.steps or size, o.top_k]
            stops = [*row.stop_ids, *[-1] * (MAX_STOP_IDS - len(row.stop_ids))]
            masks = size - len(tail)
            block = [*tail, *[self.mask_id] * masks]
            masked = [0] * len(tail) + [1] * masks
            whole.append([*scalars, *stops, *[0] * size, *block, *masked, *[0] * size])
            real.append([row.temperature, o.threshold, o.gamma, o.top_p])
        at = uploaded(list(places), self.device)
        self.whole.index_copy_(0, at, uploaded(whole, self.device))
        self.real.index_copy_(0, at, uploaded(real, self.device, torch.float32))

    def move(self, source: int, target: int) -> None:
        for part in (self.whole, self.real):
            part[target].copy_(part[source])
        self.active[source] = 0

    def unmask(self, logits: Tensor, needs: Needs) -> None:
        """One step of every row from the logits ``[rows, B, vocab]`` of its block, and what follows from it."""
        active, place = self.active.bool(), torch.arange(self.size, device=self.device)
        noise = counter_noise(self.seed, self.start[:, None] + place, self.step)
        drawn = draw(logits, self.mask_id, self.temperature, self.top_k, self.top_p, noise, needs)
        quotas = (self.size // self.steps + (self.step < self.size % self.steps)).clamp_min(1)
        masked = self.masked.bool()
        chosen = choose(
            self.strategy, masked, drawn.confidence, drawn.entropy, quotas, self.threshold, self.gamma
        )
        chosen &= active[:, None]
        block = torch.where(chosen, drawn.tokens, self.block)
        when = torch.where(chosen, self.step[:, None], self.when)
        masked = masked & ~chosen

        is_stop = (block[:, :, None] == self.stop_ids[:, None, :]).any(-1) & ~masked
        is_stop &= self.start[:, None] + place >= self.prompt_end[:, None]
        found = is_stop.any(1)
        room = self.limit - self.start
        end = torch.where(found, is_stop.int().argmax(1) + 1, self.size + 1).minimum(room)
        finished = end <= self.size
        complete = active & ~(masked & (place < end[:, None])).any(1)
        stopped = finished & is_stop.gather(1, (end - 1).clamp(0, self.size - 1)[:, None])[:, 0]
        broken = active & drawn.confidence.isnan().any(1)
        end = end.clamp_max(self.size)
        self.record.copy_(
            torch.cat(
                (
                    torch.stack((complete, finished, stopped, end, broken, active), 1).long(),
                    block,
                    when,
                ),
                1,
            )
        )
        onward = complete & ~finished
        self.before.copy_(torch.where(onward[:, None], block, self.before))
        self.block.copy_(torch.where(onward[:, None], self.mask_id, block))
        self.masked.copy_(masked | onward[:, None])
        self.when.copy_(when)
        self.step.copy_(torch.where(onward, 0, self.step + active))
        self.start.add_(onward * self.size)
        self.fresh.copy_(torch.where(active, onward, self.fresh.bool()))
        self.active.copy_(active & ~(complete & finished) & ~broken)
