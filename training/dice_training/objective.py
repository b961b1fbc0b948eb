"""The block-diffusion SFT objective: which tokens are hidden, and what the loss is.

Source: SDAR (arXiv 2510.06303) and block diffusion (arXiv 2503.09573).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

NoiseLevel = Literal["sample", "block"]
MIN_NOISE = 1e-3


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
    at: float | None = None,
) -> Corrupted:
    """Hide each answer token with probability p = (1 - 1e-3) t + 1e-3, t ~ U(0, 1) per sample (or per block).

    With ``at``, p is that everywhere.

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
    p = (1 - MIN_NOISE) * t + MIN_NOISE if at is None else torch.full_like(t, at)

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


def diffusion_loss(logits: Tensor, targets: Tensor, weight: Tensor, answer_tokens: int | Tensor) -> Tensor:
    """Sum over hidden tokens of cross-entropy / p, divided by the number of answer tokens.

    ``logits`` ``[n, vocab]``, ``targets`` and ``weight`` ``[n]``. ``answer_tokens`` counts the whole optimiser step,
    so that the gradient does not depend on how the step is cut into micro-batches or packed into rows.
    """
    return (F.cross_entropy(logits.float(), targets, reduction="none") * weight).sum() / answer_tokens
