"""What to unmask next: the four published strategies, for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

StrategyName = Literal["sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
SEQUENTIAL, STATIC, DYNAMIC, ENTROPY = range(4)
"""Places in ``STRATEGIES``: how rows of a batch say which is theirs."""


@dataclass(frozen=True)
class DecodeOptions:
    """How a reply is decoded. Raises ``ValueError`` with one clear line for values that make no sense."""

    max_new_tokens: int = 256
    strategy: StrategyName = "low_confidence_dynamic"
    steps: int | None = None
    """Steps a block is spread over (static and dynamic: at least block_size / steps tokens each); None: block_size."""
    threshold: float = 0.9
    """``low_confidence_dynamic``: every position more confident than this is unmasked."""
    gamma: float = 0.3
    """``entropy_bounded``: positions in order of entropy (nats) while the running sum stays under this."""
    top_k: int = 0
    """0: all tokens."""
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy {self.strategy!r} is none of {', '.join(STRATEGIES)}")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, it is {self.max_new_tokens}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, it is {self.steps}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_k must be >= 0 and top_p in (0, 1], they are {self.top_k} and {self.top_p}"
            )

    @property
    def number(self) -> int:
        """The strategy's place in ``STRATEGIES``."""
        return STRATEGIES.index(self.strategy)


def quota(block_size: int, steps: int, step: int) -> int:
    """Tokens to unmask at ``step`` (from 0): block_size div steps, one more in the first (block_size mod steps)."""
    return max(1, block_size // steps + (step < block_size % steps))


def steps_needed(block_size: int, steps: int, masks: int) -> int:
    """Passes until ``masks`` positions of a block are unmasked by quotas alone (sequential and static)."""
    count = 0
    while masks > 0:
        masks -= quota(block_size, steps, count)
        count += 1
    return count


def choose(
    strategy: Tensor,
    masked: Tensor,
    confidence: Tensor,
    entropy: Tensor | None,
    quotas: Tensor,
    threshold: Tensor,
    gamma: Tensor,
) -> Tensor:
    """Which masked positions become tokens now: bool ``[rows, B]``, a subset of ``masked``, never empty for a row
    that has a mask.

    ``confidence`` and ``entropy`` are ``[rows, B]``, the rest ``[rows]``. Ties go to the leftmost position. ``entropy``
    may be None where no row's strategy is entropy-bounded.
    """
    leftmost = masked & (masked.cumsum(1) <= quotas[:, None])
    order = confidence.masked_fill(~masked, -1.0).argsort(dim=1, descending=True, stable=True)
    top = masked & (order.argsort(dim=1) < quotas[:, None])
    sure = masked & (confidence > threshold[:, None])
    many = (strategy == DYNAMIC) & (sure.sum(1) >= quotas)
    chosen = torch.where((strategy == SEQUENTIAL)[:, None], leftmost, torch.where(many[:, None], sure, top))
    if entropy is None:
        return chosen
    values, order = entropy.masked_fill(~masked, torch.inf).sort(dim=1, stable=True)
    keep = values.cumsum(1) < gamma[:, None]
    keep[:, 0] = True
    bounded = torch.zeros_like(masked).scatter_(1, order, keep) & masked
    return torch.where((strategy == ENTROPY)[:, None], bounded, chosen)
