"""The network of a decoding pass in a few fused kernels a layer: the fast twin of ``SdarModel`` over paged attention.

At small batches a pass is reading the weights once, so each matrix product is one kernel with what stands before and
after it (norm, gate, residual); at large ones the library's products are faster, and the rest is fused around them.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
import triton
from torch import Tensor, nn

from dice_engine.decode.kernels import attention_kernel, combine_kernel, embed_kernel, prepare_kernel
from dice_engine.decode.launches import launch_options
from dice_engine.decode.paged import Cells
from dice_engine.decode.pages import PagePool
from dice_engine.decode.products import Kind, Products
from dice_engine.model.network import DecoderLayer, SdarModel

_PROGRAMS = 264
"""Attention is split until there are about this many programs: two for each multiprocessor of a large GPU."""
_MAX_SPLITS = 32
_MANY_CELLS = 128
"""From so many cells of a row on, keys and values are written by a kernel of their own before attention reads them."""


class Walk(NamedTuple):
    """How a program of attention goes through the keys."""

    keys: int
    """At a time."""
    warps: int
    stages: int


_WALK = Walk(64, 4, 3)


class Turns(NamedTuple):
    """Cosines and sines of the tokens' rotary embedding, float32 ``[tokens, dim / 2]``."""

    cos: Tensor
    sin: Tensor


class FusedNetwork:
    """Runs ``model`` over ``pool``. The model's q, k, v and gate, up matrices become parts of one matrix each, in
    place: the parameters stay what they are, as views of it."""

    def __init__(self, model: SdarModel, pool: PagePool) -> None:
        config = model.config
        self.model, self.pool, self.config = model, pool, config
        self._launch = launch_options(model.device)
        half = torch.arange(0, config.head_dim, 2, device=model.device, dtype=torch.float32)
        self._frequencies = config.rope_theta ** -(half / config.head_dim)
        self._precision = "ieee" if model.dtype == torch.float32 else "tf32"
        layers = [cast(DecoderLayer, layer) for layer in model.model.layers]
        attention, mlp, eps = [x.self_attn for x in layers], [x.mlp for x in layers], config.rms_norm_eps
        self._head_norms = [(a.q_norm.weight.data, a.k_norm.weight.data) for a in attention]
        self._qkv = Products(
            Kind("qkv", norm=True),
            [_joined(a.q_proj, a.k_proj, a.v_proj) for a in attention],
            [x.input_layernorm.weight.data for x in layers],
            eps,
        )
        self._out = Products(Kind("out", add=True), [a.o_proj.weight.data for a in attention], [], eps)
        self._gate_up = Products(
            Kind("gate and up", norm=True, gated=True),
            [_joined(x.gate_proj, x.up_proj) for x in mlp],
            [x.post_attention_layernorm.weight.data for x in layers],
            eps,
        )
        self._down = Products(Kind("down", add=True), [x.down_proj.weight.data for x in mlp], [], eps)
        head = [model.lm_head.weight.data]
        self._head = Products(Kind("head", norm=True), head, [model.model.norm.weight.data], eps)

    def prepare(self, tokens: int, drawn: int) -> None:
        """Choose how the products of passes of ``tokens`` tokens, of which ``drawn`` get logits, are made."""
        for products in (self._qkv, self._out, self._gate_up, self._down):
            products.prepare(tokens)
        self._head.prepare(drawn)

    def hidden(self, ids: Tensor, cells: Cells, keys_only: bool = False) -> Tensor:
        """The residual stream ``[tokens, hidden]`` after the last layer, before the final norm; with ``keys_only``
        before that layer's attention, whose keys and values are stored then."""
        last = self.config.num_hidden_layers - 1
        x, turns = self._embed(ids, cells)
        attend = self._attention(cells, turns)
        for layer in range(last + 1):
            out = attend(layer, self._qkv(layer, x), keys_only and layer == last)
            if out is None:
                break
            x = self._out(layer, out, add=x)
            x = self._down(layer, self._gate_up(layer, x), add=x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """``[tokens, vocab]`` of the residual stream of tokens."""
        return self._head(0, hidden)

    def _embed(self, ids: Tensor, cells: Cells) -> tuple[Tensor, Turns]:
        table, half = self.model.model.embed_tokens.weight, self.config.head_dim // 2
        tokens, size = ids.shape[0], table.shape[1]
        x = table.new_empty(tokens, size)
        turns = Turns(*torch.empty(2, tokens, half, device=x.device).unbind(0))
        embed_kernel[(tokens,)](
            *(ids, table, cells.positions, self._frequencies, x, *turns, size),
            HALF=half,
            HALF_PAD=triton.next_power_of_2(half),
            BLOCK=triton.next_power_of_2(size),
            num_warps=4,
            **self._launch,
        )
        return x, turns

    def _store(self, layer: int, qkv: Tensor, cells: Cells, turns: Turns) -> Tensor:
        """Normed and turned queries ``[tokens, heads, dim]``; keys and values go to their pages."""
        c, tokens = self.config, qkv.shape[0]
        units = c.num_attention_heads + 2 * c.num_key_value_heads
        q = qkv.new_empty(tokens, c.num_attention_heads, c.head_dim)
        block = min(16, triton.next_power_of_2(units))
        prepare_kernel[(tokens, triton.cdiv(units, block))](
            *(qkv, *self._head_norms[layer], *turns, cells.slots),
            *(q, self.pool.k[layer], self.pool.v[layer], c.rms_norm_eps),
            HEADS=c.num_attention_heads,
            KV_HEADS=c.num_key_value_heads,
            DIM=c.head_dim,
            HALF_PAD=triton.next_power_of_2(c.head_dim // 2),
            BLOCK=block,
            num_warps=4,
            **self._launch,
        )
        return q

    def _attention(self, cells: Cells, turns: Turns) -> Callable[[int, Tensor, bool], Tensor | None]:
        """``attend(layer, qkv, keys_only)`` of the tokens, ``[tokens, heads * dim]``."""
        c = self.config
        tokens, width = cells.slots.shape[0], cells.width
        rows, heads, kv_heads, dim = tokens // width, c.num_attention_heads, c.num_key_value_heads, c.head_dim
        queries, fresh = heads // kv_heads * width, width < _MANY_CELLS
        block = min(64, max(16, triton.next_power_of_2(queries)))
        tiles = triton.cdiv(queries, block)
        splits = max(1, min(_MAX_SPLITS, _PROGRAMS // (rows * kv_heads * tiles)))
        splits = 1 << (splits.bit_length() - 1)
        half = max(16, triton.next_power_of_2(dim // 2))
        part = torch.empty(tokens, heads, splits, dim, device=cells.slots.device)
        stat = torch.empty(tokens, heads, 2, splits, device=cells.slots.device)

        def attend(layer: int, qkv: Tensor, keys_only: bool) -> Tensor | None:
            x = qkv if fresh else self._store(layer, qkv, cells, turns)
            if keys_only and not fresh:
                return None
            out = qkv.new_empty(tokens, heads, dim)
            attention_kernel[(rows, kv_heads * tiles, splits)](
                *(x, *self._head_norms[layer], *turns, self.pool.k[layer], self.pool.v[layer]),
                *(cells.table, cells.positions, cells.slots, cells.visible, out, part, stat),
                *(cells.table.stride(0), width, tiles, dim**-0.5, c.rms_norm_eps),
                HEADS=heads,
                KV_HEADS=kv_heads,
                DIM=dim,
                HALF_PAD=half,
                PAGE=self.pool.size,
                FRESH=fresh,
                SPLITS=splits,
                PRECISION=self._precision,
                BM=block,
                BN=_WALK.keys if dim <= 128 else 32,
                BW=min(64, max(16, triton.next_power_of_2(width))),
                num_warps=_WALK.warps,
                num_stages=_WALK.stages,
                **self._launch,
            )
            if splits > 1:
                combine_kernel[(tokens * heads,)](
                    *(part, stat, out),
                    DIM=dim,
                    DIM_PAD=2 * half,
                    SPLITS=splits,
                    num_warps=1,
                    **self._launch,
                )
            return out.view(tokens, -1)

        return attend


def _joined(*parts: nn.Linear) -> Tensor:
    weight = torch.cat([part.weight.data for part in parts])
    for part, view in zip(parts, weight.split([p.out_features for p in parts]), strict=True):
        part.weight.data = view
    return weight
