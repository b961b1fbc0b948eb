"""Drawing tokens for a batch of block positions, reproducibly for each candidate whatever it is batched with.

Nothing here waits for the device, so that all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Draw(NamedTuple):
    tokens: Tensor
    """int64 ``[rows, B]``."""
    confidence: Tensor
    """float32 ``[rows, B]``: probability of the drawn token before temperature, top-k and top-p."""
    entropy: Tensor | None
    """float32 ``[rows, B]`` in nats, of the same distribution; None unless asked for."""


class Needs(NamedTuple):
    """What at least one row of a batch asks for; the rest is not computed."""

    sampling: bool
    """A temperature above 0."""
    filters: bool
    """top-k or top-p."""
    entropy: bool


def draw(
    logits: Tensor,
    banned: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    noise: Tensor,
    needs: Needs,
) -> Draw:
    """Temperature, top-k, top-p, softmax, draw: for ``logits [rows, B, vocab]``.

    The ``banned`` id (MASK) is out of the distribution from the start. Options are one a row: a ``temperature`` of 0
    means argmax, a ``top_k`` of 0 all tokens. ``noise`` is float64 ``[rows, B]``, uniform in [0, 1).
    """
    logits = logits.float()
    logits[..., banned] = -torch.inf
    logp = logits.log_softmax(-1)
    tokens = logp.argmax(-1)
    if needs.sampling:
        hot = temperature > 0
        scaled = logits / torch.where(hot, temperature, 1.0)[:, None, None]
        if needs.filters:
            scaled = _filtered(scaled, top_k, top_p)
        tokens = torch.where(hot[:, None], _invert(scaled.softmax(-1), noise), tokens)
    confidence = logp.gather(-1, tokens[..., None])[..., 0].exp()
    return Draw(tokens, confidence, torch.special.entr(logp.exp()).sum(-1) if needs.entropy else None)


def _filtered(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Logits with -inf outside the top-k and then outside the nucleus (always at least one token stays)."""
    vocab = logits.shape[-1]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    last = torch.where(top_k > 0, top_k, vocab).clamp_max(vocab) - 1
    floor = ordered.gather(-1, last[:, None, None].expand(*ordered.shape[:2], 1))
    probs = ordered.masked_fill(ordered < floor, -torch.inf).softmax(-1)
    # The mass before this token already fills the nucleus.
    outside = (probs.cumsum(-1) - probs >= top_p[:, None, None]) & (top_p < 1)[:, None, None]
    outside |= ordered < floor
    return logits.masked_fill(torch.zeros_like(outside).scatter_(-1, order, outside), -torch.inf)


def _invert(probs: Tensor, noise: Tensor) -> Tensor:
    """The token where the cumulative distribution passes ``noise``."""
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    # noise < 1 keeps the target below the total, and "right" skips tokens of probability zero.
    target = (noise * cumulative[..., -1])[..., None].contiguous()
    return torch.searchsorted(cumulative, target, right=True)[..., 0].clamp_max(probs.shape[-1] - 1)


def counter_noise(seeds: Tensor, positions: Tensor, steps: Tensor) -> Tensor:
    """Uniform float64 in [0, 1), ``[rows, B]``, a pure function of (seed, position, step).

    ``seeds`` and ``steps`` int64 ``[rows]``, ``positions`` int64 ``[rows, B]``. No generator state: a candidate draws
    the same numbers alone or in any batch, and whichever others have finished.
    """
    key = _mix(seeds)[:, None]
    key = _mix(key + positions)
    key = _mix(key + steps[:, None])
    return _shift(key, 11).double() * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 on the bits of int64: arithmetic wraps."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64)
