"""Keys and values of one request: a prefix that all its candidates share, and a part of their own.

The prefix is stored once, whatever the number of candidates: all their queries meet it in one product, and the two
partial attentions are merged by their maxima.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dice_engine.model.network import Attend, SdarModel

PREFILL_CHUNK = 1024
FIRST_CAPACITY = 128


class SharedPrefix:
    """K/V ``[layers, kv_heads, length, head_dim]`` of the whole blocks of a prompt."""

    def __init__(self, model: SdarModel, length: int) -> None:
        c = model.config
        shape = (c.num_hidden_layers, c.num_key_value_heads, length, c.head_dim)
        self.k = torch.empty(shape, device=model.device, dtype=model.dtype)
        self.v = torch.empty_like(self.k)
        self.length = length

    def fill(self, model: SdarModel, tokens: list[int], block_size: int) -> Iterator[int]:
        """Prefill ``tokens`` (whole blocks) chunk by chunk; yields the number of tokens done, so that the caller can
        stop between chunks."""
        chunk = max(1, PREFILL_CHUNK // block_size) * block_size
        ids = torch.tensor(tokens, device=model.device)[None]
        for start in range(0, self.length, chunk):
            end = min(start + chunk, self.length)
            with torch.inference_mode():
                at = torch.arange(end, device=model.device)
                mask = at[start:end, None] // block_size >= at[None, :] // block_size
                model.model(ids[:, start:end], at[None, start:end], self._attend(start, end, mask))
            yield end

    def _attend(self, start: int, end: int, mask: Tensor) -> Attend:
        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.k[layer, :, start:end] = k[0]
            self.v[layer, :, start:end] = v[0]
            keys, values = self.k[layer, None, :, :end], self.v[layer, None, :, :end]
            return F.scaled_dot_product_attention(
                q, keys, values, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
            )

        return attend


@dataclass(frozen=True)
class Layout:
    """Where the packed tokens of one pass sit. ``grid`` cells are (row, query) with ``width`` queries a row."""

    width: int
    cell_of_token: Tensor
    """int64 ``[tokens]``: row * width + query."""
    token_of_cell: Tensor
    """int64 ``[rows * width]``: the inverse; cells without a token point at token 0 and are dropped at the end."""
    row_of_token: Tensor
    slot_of_token: Tensor
    """int64 ``[tokens]``: place in the row's own cache."""
    visible: Tensor
    """int64 ``[rows, width]``: how many own slots a query sees (its block and those before it)."""
    used: int
    """Own slots in use by the longest row: the largest of ``visible``."""


class OwnCache:
    """K/V ``[layers, rows, kv_heads, capacity, head_dim]``, static, doubled when a row outgrows it."""

    def __init__(self, model: SdarModel, rows: int, prefix: SharedPrefix) -> None:
        c = model.config
        self.prefix = prefix
        self.kv_heads = c.num_key_value_heads
        self.scale = c.head_dim**-0.5
        shape = (c.num_hidden_layers, rows, c.num_key_value_heads, FIRST_CAPACITY, c.head_dim)
        # Zeros, not empty: slots that no query sees are multiplied by zero, and 0 * NaN would be NaN.
        self.k = torch.zeros(shape, device=model.device, dtype=model.dtype)
        self.v = torch.zeros_like(self.k)

    def reserve(self, slots: int) -> None:
        while slots > self.k.shape[3]:
            self.k = torch.cat((self.k, torch.zeros_like(self.k)), dim=3)
            self.v = torch.cat((self.v, torch.zeros_like(self.v)), dim=3)

    @torch.inference_mode()
    def move(self, source: int, target: int) -> None:
        """Row ``source`` takes the place of ``target``, which has finished."""
        self.k[:, target] = self.k[:, source]
        self.v[:, target] = self.v[:, source]

    def attend(self, layout: Layout, rows: int) -> Attend:
        """Attention of one pass over packed tokens (batch 1); writes their K/V into their slots first."""
        heads, capacity, width = self.kv_heads, self.k.shape[3], layout.width
        head = torch.arange(heads, device=self.k.device)[:, None]
        flat = (((layout.row_of_token * heads) + head) * capacity + layout.slot_of_token).flatten()
        slots = torch.arange(layout.used, device=self.k.device)
        # [rows * kv_heads, group * width, used] is the shape of the own scores; see `grid` below.
        hidden = (slots >= layout.visible[..., None])[:, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            dim, group = q.shape[3], q.shape[1] // heads
            self.k[layer].view(-1, dim).index_copy_(0, flat, k[0].reshape(-1, dim))
            self.v[layer].view(-1, dim).index_copy_(0, flat, v[0].reshape(-1, dim))
            own_k = self.k[layer].flatten(0, 1)[: rows * heads, : layout.used]
            own_v = self.v[layer].flatten(0, 1)[: rows * heads, : layout.used]
            grid = (q[0].transpose(0, 1) * self.scale).index_select(0, layout.token_of_cell)
            grid = grid.view(rows, width, heads, group, dim).permute(0, 2, 3, 1, 4)

            own = _product(grid.reshape(rows * heads, group * width, dim), own_k.transpose(1, 2))
            own = own.view(rows, heads, group, width, -1).masked_fill_(hidden, torch.finfo(own.dtype).min)
            top = own.amax(-1, keepdim=True)
            shared = None
            if self.prefix.length:
                keys = self.prefix.k[layer].transpose(1, 2)
                shared = _product(grid.transpose(0, 1).reshape(heads, -1, dim), keys)
                shared = shared.view(heads, rows, group, width, -1).transpose(0, 1)
                top = torch.maximum(top, shared.amax(-1, keepdim=True))
            own.sub_(top).exp_()
            total = own.sum(-1, keepdim=True)
            weights = own.view(rows * heads, group * width, -1).to(q.dtype)
            out = _product(weights, own_v).view(rows, heads, group, width, dim)
            if shared is not None:
                shared.sub_(top).exp_()
                total = total + shared.sum(-1, keepdim=True)
                weights = shared.transpose(0, 1).reshape(heads, rows * group * width, -1).to(q.dtype)
                more = _product(weights, self.prefix.v[layer]).view(heads, rows, group, width, dim)
                out = out + more.transpose(0, 1)
            out = (out / total).permute(0, 3, 1, 2, 4).reshape(rows * width, heads * group, dim)
            return out.index_select(0, layout.cell_of_token).transpose(0, 1)[None].to(q.dtype)

        return attend


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Batched matrix product with a float32 result: scores rounded to bfloat16 would blur the softmax."""
    if a.dtype == torch.float32:
        return torch.bmm(a, b)
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())
