"""Who sees whom in packed, doubled rows: as a dense mask, and as a FlexAttention block mask built without trying pairs.

With b = floor(position / B), inside one document: clean sees clean of blocks <= its own; noisy sees clean of blocks
< its own and noisy of its own block. One integer a position says which document, block and half it is in, and the
keys that a query sees are those with its own code or with a code in one range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

TILE = 128
"""FlexAttention skips or keeps whole tiles of so many queries and keys."""
SPAN = 1 << 15
"""More than the blocks of any document, and than the documents of any row."""
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Codes:
    """int32 ``[rows, length]``. ``code`` is document * SPAN + block where clean, ``-1 - that`` where noisy; a query
    sees keys with its own code and those with ``first`` <= code <= ``last``."""

    code: Tensor
    first: Tensor
    last: Tensor


def codes(position: Tensor, document: Tensor, noisy: Tensor, block_size: int) -> Codes:
    first = (document * SPAN).int()
    clean = (first + position // block_size).int()
    return Codes(torch.where(noisy, -1 - clean, clean), first, torch.where(noisy, clean - 1, clean))


def mask_mod(rows: Codes) -> MaskMod:
    """The rule for FlexAttention. It reads the tensors when it runs: it holds for what is copied into them later."""
    code, first, last = rows.code, rows.first, rows.last

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = code[row, key]
        return (seen == code[row, query]) | ((seen >= first[row, query]) & (seen <= last[row, query]))

    return visible


def dense_mask(rows: Codes) -> Tensor:
    """Bool ``[rows, 1, length, length]``, True where a query may see a key."""
    seen = rows.code[:, None, :]
    in_range = (seen >= rows.first[:, :, None]) & (seen <= rows.last[:, :, None])
    return (in_range | (seen == rows.code[:, :, None])).unsqueeze(1)


def block_mask(rows: Codes, block_size: int, rule: MaskMod) -> BlockMask:
    """The tiles of ``rows``, exactly: each is empty, full, or decided pair by pair by ``rule``.

    Samples start at whole blocks, so that the rule is tried once for every pair of blocks (of gcd(B, TILE)
    positions), not of positions: B = 4 takes 16 times fewer. ``length`` must be a multiple of ``TILE``.
    """
    unit = math.gcd(block_size, TILE)
    units = Codes(*(tensor[:, ::unit] for tensor in vars(rows).values()))
    pairs = dense_mask(units).unflatten(3, (-1, TILE // unit)).unflatten(2, (-1, TILE // unit))
    some, every = pairs.any(5).any(3), pairs.all(5).all(3)
    partial_count, partial = _listed(some & ~every)
    full_count, full = _listed(every)
    return BlockMask.from_kv_blocks(partial_count, partial, full_count, full, TILE, mask_mod=rule)


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """Of bool tiles ``[..., q, kv]``: how many are set for each q, and their kv indices first, in order."""
    order = tiles.int().argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1).int(), order.int()
