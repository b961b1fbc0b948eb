"""The TraceRL objective: who sees whom in a row, log-probabilities of what was drawn, the clipped loss and the KL.

Source: TraceRL (arXiv 2509.06949), with the loss over the number of drawn tokens of the whole update, so that it
depends neither on padding nor on how the update is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dice_training.rl.trajectory import Rows

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
MAX_LOG_RATIO = 10.0


@dataclass(frozen=True)
class Batch:
    """:class:`Rows` as tensors ``[rows, length]`` on the device."""

    ids: Tensor
    target: Tensor
    position: Tensor
    document: Tensor
    branch: Tensor
    copy: Tensor
    loss: Tensor
    advantage: Tensor

    @staticmethod
    def of(rows: Rows, device: torch.device) -> Batch:
        return Batch(**{name: torch.from_numpy(array).to(device) for name, array in vars(rows).items()})


def visibility(batch: Batch, block_size: int) -> MaskMod:
    """Who sees whom, as a FlexAttention ``mask_mod(row, head, query, key)``.

    Inside a document, with b = floor(position / B): everyone sees clean tokens of the shared prompt and of the own
    branch, of blocks up to the own one (clean) or before it (noisy); a noisy token also sees its own noisy block.
    """
    position, document, branch, copy = batch.position, batch.document, batch.branch, batch.copy

    def mask_mod(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        q_branch, k_branch = branch[row, query], branch[row, key]
        q_copy, k_copy = copy[row, query], copy[row, key]
        q, k = position[row, query] // block_size, position[row, key] // block_size
        related = (document[row, query] == document[row, key]) & ((k_branch == 0) | (k_branch == q_branch))
        clean_key = (k_copy == 0) & torch.where(q_copy == 0, q >= k, q > k)
        own_block = (q_copy > 0) & (q_copy == k_copy) & (q_branch == k_branch)
        return related & (clean_key | own_block)

    return mask_mod


def dense_visibility(batch: Batch, block_size: int) -> Tensor:
    """The same rule as a bool tensor ``[rows, 1, length, length]``, for devices without FlexAttention."""
    rows, length = batch.ids.shape
    row = torch.arange(rows, device=batch.ids.device).view(-1, 1, 1)
    place = torch.arange(length, device=batch.ids.device)
    seen = visibility(batch, block_size)(row, row, place.view(1, -1, 1), place.view(1, 1, -1))
    return seen.unsqueeze(1)


def log_probabilities(
    logits: Tensor, target: Tensor, mask_id: int, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probability ``[n]`` of ``target [n]``, and entropy ``[n]`` in nats (without gradient), under the distribution
    that was drawn from: ``logits [n, vocab]`` without MASK, at ``temperature``."""
    logits = logits.float().index_fill(-1, torch.tensor([mask_id], device=logits.device), -torch.inf)
    logp = (logits / temperature).log_softmax(-1)
    entropy = torch.special.entr(logp.detach().exp()).sum(-1)
    return logp.gather(-1, target[:, None])[:, 0], entropy


def policy_loss(
    new: Tensor, old: Tensor, advantage: Tensor, clip: float, tokens: int
) -> tuple[Tensor, Tensor]:
    """-(1 / tokens) sum min(r A, clip(r) A) with r = exp(new - old), and the share of tokens that the clip holds back.

    ``new``, ``old`` (log-probabilities) and ``advantage`` are ``[n]``; ``tokens`` counts the whole update.
    """
    ratio = (new - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    free, held = ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage
    return -torch.minimum(free, held).sum() / tokens, (held < free).float().mean()


def kl_estimate(new: Tensor, reference: Tensor) -> Tensor:
    """k3, an estimate ``[n]`` >= 0 of KL(policy || reference) at the drawn tokens: exp(-d) - 1 + d with
    d = new - reference."""
    d = (new - reference).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.exp(-d) - 1 + d
