"""Samples to rows: prompt and answer, once clean and (the answer's blocks only) once to be corrupted.

Block diffusion trains on the sequence twice, [clean | noisy]. Noisy copies of blocks that hold no answer token carry
no loss and are seen by nobody, so they are left out: a row costs prompt + 2 x answer, not 2 x (prompt + answer), and
every remaining logit is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sample:
    """One training text. ``ids`` is prompt + answer, padded with the end token to a whole number of blocks."""

    ids: NDArray[np.int32]
    prompt_length: int

    def rows_needed(self, block_size: int) -> int:
        """Positions this sample takes in a row: itself and the noisy copy of its answer's blocks."""
        first = self.prompt_length // block_size * block_size
        return 2 * len(self.ids) - first


def make_sample(prompt: Sequence[int], answer: Sequence[int], end_id: int, block_size: int) -> Sample:
    """``answer`` must end with ``end_id``; the padding after it is more of it, learned like the rest."""
    if not answer or answer[-1] != end_id:
        raise ValueError("an answer ends with the end token")
    ids = [*prompt, *answer]
    ids += [end_id] * (-len(ids) % block_size)
    return Sample(np.asarray(ids, dtype=np.int32), len(prompt))


@dataclass(frozen=True)
class Rows:
    """Packed rows; every array is ``[rows, length]``.

    ``document`` separates samples (padding is a document of its own), ``position`` restarts in each, and the noisy
    copy of a token has the position of its clean twin. ``answer`` marks the noisy tokens that may be masked.
    """

    ids: NDArray[np.int32]
    position: NDArray[np.int32]
    document: NDArray[np.int32]
    noisy: NDArray[np.bool_]
    answer: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)


def pack(samples: Sequence[Sample], length: int, block_size: int) -> Rows:
    """``samples`` in as few rows as first-fit packing finds."""
    return lay_out(bins(samples, length, block_size), length, block_size)


def bins(samples: Sequence[Sample], length: int, block_size: int) -> list[list[Sample]]:
    """Which samples share a row: first fit in the order given, over the last few open rows.

    A sample that fits no row is an error: callers drop over-long samples beforehand (and say how many), so that
    nothing disappears silently here.
    """
    rows: list[list[Sample]] = []
    room: list[int] = []
    open_from = 0
    for sample in samples:
        need = sample.rows_needed(block_size)
        if need > length:
            raise ValueError(f"a sample needs {need} positions, a row has {length}")
        for index in range(open_from, len(rows)):
            if room[index] >= need:
                rows[index].append(sample)
                room[index] -= need
                break
        else:
            rows.append([sample])
            room.append(length - need)
            open_from = max(open_from, len(rows) - 8)
    return rows


def lay_out(rows: Sequence[Sequence[Sample]], length: int, block_size: int) -> Rows:
    shape = (len(rows), length)
    ids = np.zeros(shape, np.int32)
    position = np.zeros(shape, np.int32)
    document = np.zeros(shape, np.int32)
    noisy = np.zeros(shape, np.bool_)
    answer = np.zeros(shape, np.bool_)
    for row, members in enumerate(rows):
        at = 0
        for number, sample in enumerate(members):
            size = len(sample.ids)
            first = sample.prompt_length // block_size * block_size
            clean, copy = slice(at, at + size), slice(at + size, at + 2 * size - first)
            ids[row, clean], ids[row, copy] = sample.ids, sample.ids[first:]
            position[row, clean], position[row, copy] = np.arange(size), np.arange(first, size)
            document[row, at : copy.stop] = number
            noisy[row, copy] = True
            answer[row, copy] = np.arange(first, size) >= sample.prompt_length
            at = copy.stop
        document[row, at:] = len(members)
    return Rows(ids, position, document, noisy, answer)


def batches(count: int, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Row indices in random order, ``size`` at a time; the last short batch is dropped."""
    order = rng.permutation(count)
    for start in range(0, count - size + 1, size):
        yield order[start : start + size]
