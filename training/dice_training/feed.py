"""From samples to batches on the device: order, packing and noise are drawn ahead, on the CPU.

A batch is a function of the seed, the epoch and its number in it. So a run that stops goes on with the very batches
that it would have had, and the host knows how many tokens are hidden without asking the GPU.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dice_training.masks import Codes, codes
from dice_training.objective import Batch, NoiseLevel, corrupt
from dice_training.packing import Rows, Sample, batches, bins, lay_out
from dice_training.ranks import ALONE, Ranks
from dice_training.speed import Work

AHEAD = 4
"""Batches kept ready."""


@dataclass(frozen=True)
class Inputs:
    """One micro-batch. ``ids`` (noised), ``position`` and ``codes`` are ``[rows, length]``; the hidden tokens are
    listed: their ``place`` in the flattened rows, ``target`` and ``weight`` (1 / p), ``[n]``."""

    ids: Tensor
    position: Tensor
    codes: Codes
    place: Tensor
    target: Tensor
    weight: Tensor
    answers: int
    """Answer tokens, hidden or not: what losses are divided by."""
    work: Work

    def to(self, device: torch.device) -> Inputs:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        moved = {name: move(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved, codes=Codes(*(move(t) for t in vars(self.codes).values())))

    def pinned(self) -> Inputs:
        """In page-locked memory, from where copies to a GPU do not block."""
        tensors = {
            name: value.pin_memory() for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors, codes=Codes(*(t.pin_memory() for t in vars(self.codes).values())))


@dataclass(frozen=True)
class Noise:
    """How rows are corrupted."""

    mask_id: int
    block_size: int
    level: NoiseLevel


def noised(rows: Rows, noise: Noise, seed: Sequence[int], level: float | None = None) -> Inputs:
    """``rows`` with tokens hidden as ``seed`` says: each with probability ``level``, or with drawn ones."""
    batch = Batch(*(torch.from_numpy(array) for array in vars(rows).values()))
    batch = replace(batch, document=batch.document.long())
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    out = corrupt(
        batch,
        mask_id=noise.mask_id,
        block_size=noise.block_size,
        level=noise.level,
        generator=generator,
        at=level,
    )
    place = out.hidden.flatten().nonzero().squeeze(1)
    return Inputs(
        out.ids,
        batch.position,
        codes(batch.position, batch.document, batch.noisy, noise.block_size),
        place,
        batch.ids.flatten()[place].long(),
        out.weight.flatten()[place],
        int(rows.answer.sum()),
        work_of(rows, noise.block_size, len(place)),
    )


def work_of(rows: Rows, block_size: int, hidden: int) -> Work:
    """A query in block b sees b + 1 blocks, whether it is clean or noisy."""
    last = rows.document[:, -1:]
    # The last document is padding, unless a sample ends the row.
    used = (rows.document < last) | rows.noisy[:, -1:]
    seen = (rows.position // block_size + 1) * block_size
    return Work(int(used.sum()), int(seen[used].sum()), hidden)


@dataclass(frozen=True)
class Place:
    """Where in the data a run stands: the next batch is number ``batch`` of ``epoch``."""

    epoch: int = 0
    batch: int = 0


class Feed:
    """Noised batches for ever, packed anew in another order each epoch, from ``place`` on.

    There is one row of batches, whatever the number of processes: they take turns in it, ``ranks.count`` batches at a
    time, and ``place`` is the same for all of them.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        noise: Noise,
        *,
        row_length: int,
        batch_rows: int,
        seed: int,
        place: Place | None = None,
        ranks: Ranks = ALONE,
        pin: bool = False,
    ) -> None:
        self.samples, self.noise, self.ranks, self.pin = samples, noise, ranks, pin
        self.row_length, self.batch_rows, self.seed = row_length, batch_rows, seed
        self.place = place or Place()
        self._packers, self._makers = ThreadPoolExecutor(1), ThreadPoolExecutor(2)
        self._ready: deque[tuple[Place, Future[Inputs]]] = deque()
        self._coming = self._submitted(self.place)

    def next(self) -> Inputs:
        while len(self._ready) < AHEAD:
            self._ready.append(next(self._coming))
        self.place, future = self._ready.popleft()
        return future.result()

    def close(self) -> None:
        for pool in (self._packers, self._makers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _submitted(self, place: Place) -> Iterator[tuple[Place, Future[Inputs]]]:
        """This process's batch of each round, being made, with the place after the round."""
        every = self._every(place)
        while True:
            turns = list(islice(every, self.ranks.count))
            _, chosen, seed = turns[self.ranks.rank]
            yield turns[-1][0], self._makers.submit(self._make, chosen, seed)

    def _every(self, place: Place) -> Iterator[tuple[Place, list[list[Sample]], tuple[int, ...]]]:
        """The rows and the seed of each batch, with the place after it; the next epoch is packed while this one is
        used."""
        epoch, skip = place.epoch, place.batch
        following = self._packers.submit(self._epoch, epoch)
        while True:
            rows, order = following.result()
            following = self._packers.submit(self._epoch, epoch + 1)
            for number in range(skip, len(order)):
                chosen = [rows[index] for index in order[number]]
                yield Place(epoch, number + 1), chosen, (self.seed, epoch, number)
            epoch, skip = epoch + 1, 0

    def _epoch(self, epoch: int) -> tuple[list[list[Sample]], list[NDArray[np.int64]]]:
        """An epoch's rows, and which of them make up each batch."""
        rng = np.random.default_rng([self.seed, epoch])
        shuffled = [self.samples[i] for i in rng.permutation(len(self.samples))]
        rows = bins(shuffled, self.row_length, self.noise.block_size)
        rows *= -(-self.batch_rows // len(rows))  # a data set too small for a batch is repeated
        return rows, list(batches(len(rows), self.batch_rows, rng))

    def _make(self, rows: list[list[Sample]], seed: Sequence[int]) -> Inputs:
        laid_out = lay_out(rows, self.row_length, self.noise.block_size)
        inputs = noised(laid_out, self.noise, seed)
        return inputs.pinned() if self.pin else inputs


def take(rows: Rows, index: np.ndarray) -> Rows:
    return Rows(*(array[index] for array in vars(rows).values()))


def fingerprint(samples: Sequence[Sample]) -> str:
    """Changes when the samples or their order do."""
    digest = hashlib.blake2b(digest_size=16)
    for sample in samples:
        digest.update(sample.ids.tobytes())
        digest.update(sample.prompt_length.to_bytes(4, "little"))
    return digest.hexdigest()
