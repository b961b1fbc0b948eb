"""Attention of a pass over pages of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dice_engine.decode.pages import PagePool
from dice_engine.model.network import Attend


@dataclass(frozen=True)
class Grid:
    """The cells of a pass: ``width`` positions for each of ``rows``."""

    table: Tensor
    """int64 ``[rows, pages]``: the pages that a row sees, in order; page 0 where it has none."""
    slots: Tensor
    """int64 ``[tokens]``: where the keys and values of the tokens are written."""
    visible: Tensor
    """int64 ``[rows, width]``: how many positions a cell sees, at least one."""
    tokens: tuple[Tensor, Tensor] | None
    """int64 (cell of each token, token of each cell) where only some cells hold a token; None: all do. Cells without
    one may take any token: nobody reads them."""


@dataclass(frozen=True)
class Cells:
    """Where the ``rows * width`` tokens of a pass sit; all int64, one a token but ``table [rows, pages]``."""

    table: Tensor
    slots: Tensor
    """Places in a layer's pages that the new keys and values go to."""
    positions: Tensor
    visible: Tensor
    """How many positions a token sees; it does not fall inside a row."""
    width: int


def grid_attention(pool: PagePool, grid: Grid) -> Attend:
    """Attention of q ``[1, heads, tokens, dim]`` or ``[rows, heads, width, dim]``; writes the new k and v first."""
    rows, width = grid.visible.shape
    place = torch.arange(grid.table.shape[1] * pool.size, device=grid.table.device)
    hidden = place >= grid.visible[..., None]  # [rows, width, positions]
    mask = torch.zeros(hidden.shape, dtype=pool.k.dtype, device=place.device)
    mask = mask.masked_fill_(hidden, -torch.inf)[:, None, None]
    # The query heads of one key head stand side by side, as if they were more positions.
    group = pool.query_heads // pool.k.shape[3]
    mask = mask.expand(-1, -1, group, -1, -1).flatten(2, 3)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dim, heads = q.shape[3], k.shape[1]
        for pages, new in ((pool.k[layer], k), (pool.v[layer], v)):
            pages.view(-1, heads, dim).index_copy_(0, grid.slots, new.transpose(1, 2).reshape(-1, heads, dim))
        keys = pool.k[layer][grid.table].view(rows, -1, heads, dim).transpose(1, 2)
        values = pool.v[layer][grid.table].view(rows, -1, heads, dim).transpose(1, 2)
        queries = q.transpose(1, 2).reshape(-1, heads, group, dim)
        if grid.tokens is not None:
            queries = queries.index_select(0, grid.tokens[1])
        queries = queries.view(rows, width, heads, group, dim).permute(0, 2, 3, 1, 4).flatten(2, 3)
        out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        out = out.view(rows, heads, group, width, dim).permute(0, 3, 1, 2, 4)
        if grid.tokens is not None:
            out = out.reshape(rows * width, -1, dim).index_select(0, grid.tokens[0])
            return out.transpose(0, 1)[None]
        return out.reshape(rows, width, -1, dim).transpose(1, 2)

    return attend


def prefill_attention(pool: PagePool, pages: Tensor, start: int, end: int, block_size: int) -> Attend:
    """Attention of one prompt's positions ``start`` to ``end`` (whole blocks) to all before and to themselves, under
    the staircase mask; ``pages`` int64 are the prompt's, and hold the positions before ``start`` already."""
    at = torch.arange(end, device=pages.device)
    mask = at[start:, None] // block_size >= at[None, :] // block_size
    slots = pool.slots(pages[None], at[None])[0]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dim, heads = q.shape[3], k.shape[1]
        flat_k, flat_v = (part[layer].view(-1, heads, dim) for part in (pool.k, pool.v))
        flat_k.index_copy_(0, slots[start:], k[0].transpose(0, 1))
        flat_v.index_copy_(0, slots[start:], v[0].transpose(0, 1))
        if start:
            k, v = (flat.index_select(0, slots).transpose(0, 1)[None] for flat in (flat_k, flat_v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != heads)

    return attend
