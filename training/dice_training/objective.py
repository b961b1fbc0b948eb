"""The block-diffusion SFT objective: which tokens are hidden, who sees whom, and what the loss is.

Source: SDAR (arXiv 2510.06303) and block diffusion (arXiv 2503.09573).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

NoiseLevel = Literal["sample", "block"]
MIN_NOISE = 1e-3
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Rows on the device, as packed by :mod:`dice_training.packing`; every tensor is ``[rows, length]``."""

    ids: Tensor
    position: Tensor
    document: Tensor
    noisy: Tensor
    answer: Tensor


@dataclass(frozen=True)
class Corrupted:
    """``ids`` with hidden tokens replaced; ``hidden`` marks them; ``weight`` is 1 / p where hidden, else 0."""

    ids: Tensor
    hidden: Tensor
    weight: Tensor


def corrupt(
    batch: Batch,
    *,
    mask_id: int,
    block_size: int,
    level: NoiseLevel = "sample",
    generator: torch.Generator | None = None,
) -> Corrupted:
    """Hide each answer token with probability p = (1 - 1e-3) t + 1e-3, t ~ U(0, 1) per sample (or per block).

    Each sample hides at least one token: where the draws hide none, the token with the smallest draw is taken.
    """
    rows, length = batch.ids.shape
    device = batch.ids.device
    t = torch.rand(rows, length, device=device, generator=generator)
    if level == "sample":
        t = t.gather(1, batch.document)
    else:
        columns = torch.arange(length, device=device).expand(rows, length)
        t = t.gather(1, columns - batch.position % block_size)
    p = (1 - MIN_NOISE) * t + MIN_NOISE

    draw = torch.rand(rows, length, device=device, generator=generator)
    hidden = batch.answer & (draw < p)
    smallest = torch.full_like(draw, 2.0).scatter_reduce(
        1, batch.document, torch.where(batch.answer, draw, 2.0), "amin"
    )
    has_hidden = torch.zeros_like(draw).scatter_reduce(1, batch.document, hidden.to(draw.dtype), "amax")
    forced = (draw == smallest.gather(1, batch.document)) & (has_hidden.gather(1, batch.document) == 0)
    hidden = hidden | (batch.answer & forced)

    ids = torch.where(hidden, mask_id, batch.ids)
    return Corrupted(ids, hidden, torch.where(hidden, 1.0 / p, 0.0))


def visibility(batch: Batch, block_size: int) -> MaskMod:
    """Who sees whom, as a FlexAttention ``mask_mod(row, head, query, key)``.

    With b = floor(position / B), inside one document:
    clean sees clean of blocks <= its own; noisy sees clean of blocks < its own and noisy of its own block.
    The function reads the batch's tensors when it runs, so it holds for whatever is copied into them later.
    """
    position, document, noisy = batch.position, batch.document, batch.noisy

    def mask_mod(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = document[row, query] == document[row, key]
        q, k = position[row, query] // block_size, position[row, key] // block_size
        q_noisy, k_noisy = noisy[row, query], noisy[row, key]
        clean_clean = ~q_noisy & ~k_noisy & (q >= k)
        noisy_clean = q_noisy & ~k_noisy & (q > k)
        noisy_noisy = q_noisy & k_noisy & (q == k)
        return same & (clean_clean | noisy_clean | noisy_noisy)

    return mask_mod


def dense_visibility(batch: Batch, block_size: int) -> Tensor:
    """The same rule as a bool tensor ``[rows, 1, length, length]``, for devices without FlexAttention."""
    rows, length = batch.ids.shape
    row = torch.arange(rows, device=batch.ids.device).view(-1, 1, 1)
    place = torch.arange(length, device=batch.ids.device)
    mask_mod = visibility(batch, block_size)
    return mask_mod(row, row, place.view(1, -1, 1), place.view(1, 1, -1)).unsqueeze(1)


def diffusion_loss(logits: Tensor, targets: Tensor, weight: Tensor, answer_tokens: int | Tensor) -> Tensor:
    """Sum over hidden tokens of cross-entropy / p, divided by the number of answer tokens.

    ``logits`` ``[n, vocab]``, ``targets`` and ``weight`` ``[n]``. ``answer_tokens`` counts the whole optimiser step,
    so that the gradient does not depend on how the step is cut into micro-batches or packed into rows.
    """
    return (F.cross_entropy(logits.float(), targets, reduction="none") * weight).sum() / answer_tokens
