"""Drawing tokens for a batch of block positions, reproducibly for each candidate whatever it is batched with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draw(NamedTuple):
    tokens: Tensor
    """int64 ``[rows, B]``."""
    confidence: Tensor
    """float32 ``[rows, B]``: probability of the drawn token before temperature, top-k and top-p."""
    entropy: Tensor | None
    """float32 ``[rows, B]`` in nats, of the same distribution; None unless asked for."""


def draw(
    logits: Tensor, banned: int, temperature: Tensor, top_k: int, top_p: float, noise: Tensor, entropy: bool
) -> Draw:
    """Temperature, top-k, top-p, softmax, draw: for ``logits [rows, B, vocab]``.

    The ``banned`` id (MASK) is out of the distribution from the start. ``temperature [rows]`` of 0 means argmax.
    ``noise`` is float64 ``[rows, B]``, uniform in [0, 1).
    """
    logits = logits.float()
    logits[..., banned] = -torch.inf
    logp = logits.log_softmax(-1)
    tokens = logp.argmax(-1)
    hot = temperature > 0
    if bool(hot.any()):
        scaled = logits[hot] / temperature[hot, None, None]
        tokens[hot] = _invert(_filtered(scaled, top_k, top_p).softmax(-1), noise[hot])
    confidence = logp.gather(-1, tokens[..., None])[..., 0].exp()
    return Draw(tokens, confidence, torch.special.entr(logp.exp()).sum(-1) if entropy else None)


def _filtered(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Logits with -inf outside the top-k and then outside the nucleus (always at least one token stays)."""
    if 0 < top_k < logits.shape[-1]:
        floor = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    if top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probs = ordered.softmax(-1)
        outside = probs.cumsum(-1) - probs >= top_p  # the mass before this token already fills the nucleus
        logits = logits.masked_fill(torch.zeros_like(outside).scatter_(-1, order, outside), -torch.inf)
    return logits


def _invert(probs: Tensor, noise: Tensor) -> Tensor:
    """The token where the cumulative distribution passes ``noise``."""
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    # noise < 1 keeps the target below the total, and "right" skips tokens of probability zero.
    target = (noise * cumulative[..., -1])[..., None].contiguous()
    return torch.searchsorted(cumulative, target, right=True)[..., 0].clamp_max(probs.shape[-1] - 1)


def counter_noise(seeds: np.ndarray, positions: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Uniform float64 in [0, 1), ``[rows, B]``, a pure function of (seed, position, step).

    ``seeds`` and ``steps`` int64 ``[rows]``, ``positions`` int64 ``[rows, B]``. No generator state: a candidate draws
    the same numbers alone or in any batch, and whichever others have finished.
    """
    key = _mix(seeds.astype(np.uint64))[:, None]
    key = _mix(key + positions.astype(np.uint64))
    key = _mix(key + steps.astype(np.uint64)[:, None])
    return (key >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: uint64 to well-mixed uint64 (arithmetic wraps)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
