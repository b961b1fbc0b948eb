"""The network of a decoding pass in a few fused kernels a layer: the fast twin of ``SdarModel`` over paged attention.

At small batches a pass is reading the weights once, so each matrix product is one kernel with what stands before and
after it (norm, gate, residual); at large ones the library's products are faster, and the rest is fused around them.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from dice_engine.decode.kernels import attention_kernel, combine_kernel, prepare_kernel
from dice_engine.decode.paged import Cells
from dice_engine.decode.pages import PagePool
from dice_engine.decode.products import Kind, Products
from dice_engine.model.network import DecoderLayer, SdarModel

_PROGRAMS = 264
"""Attention is split until there are about this many programs: two for each multiprocessor of a large GPU."""
_MAX_SPLITS = 32


class FusedNetwork:
    """Runs ``model`` over ``pool``. The model's q, k, v and gate, up matrices become parts of one matrix each, in
    place: the parameters stay what they are, as views of it."""

    def __init__(self, model: SdarModel, pool: PagePool) -> None:
        config = model.config
        self.model, self.pool, self.config = model, pool, config
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

    def hidden(self, ids: Tensor, cells: Cells) -> Tensor:
        """The residual stream ``[tokens, hidden]`` after the last layer, before the final norm."""
        x = F.embedding(ids, self.model.model.embed_tokens.weight)
        attend = self._attention(cells)
        for layer in range(self.config.num_hidden_layers):
            q = self._heads(layer, self._qkv(layer, x), cells)
            x = self._out(layer, attend(q, self.pool.k[layer], self.pool.v[layer]), add=x)
            x = self._down(layer, self._gate_up(layer, x), add=x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """``[tokens, vocab]`` of the residual stream of tokens."""
        return self._head(0, hidden)

    def _heads(self, layer: int, qkv: Tensor, cells: Cells) -> Tensor:
        """Normalised and rotated queries ``[tokens, heads, dim]``; keys and values go to their pages."""
        c, tokens = self.config, qkv.shape[0]
        q_norm, k_norm = self._head_norms[layer]
        q = qkv.new_empty(tokens, c.num_attention_heads, c.head_dim)
        prepare_kernel[(tokens, c.num_attention_heads + 2 * c.num_key_value_heads)](
            *(qkv, q_norm, k_norm, self._frequencies, cells.positions, cells.slots),
            *(q, self.pool.k[layer], self.pool.v[layer], c.rms_norm_eps),
            HEADS=c.num_attention_heads,
            KV_HEADS=c.num_key_value_heads,
            DIM=c.head_dim,
            HALF=triton.next_power_of_2(c.head_dim // 2),
            num_warps=1,
        )
        return q

    def _attention(self, cells: Cells) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        c = self.config
        tokens, width = cells.slots.shape[0], cells.width
        rows, heads, kv_heads, dim = tokens // width, c.num_attention_heads, c.num_key_value_heads, c.head_dim
        queries = heads // kv_heads * width
        block = min(64, max(16, triton.next_power_of_2(queries)))
        tiles = triton.cdiv(queries, block)
        splits = max(1, min(_MAX_SPLITS, _PROGRAMS // (rows * kv_heads * tiles)))
        splits = 1 << (splits.bit_length() - 1)
        padded = max(16, triton.next_power_of_2(dim))
        part = torch.empty(tokens, heads, splits, dim, device=cells.slots.device)
        stat = torch.empty(tokens, heads, 2, splits, device=cells.slots.device)

        def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor) -> Tensor:
            out = torch.empty_like(q)
            attention_kernel[(rows, kv_heads * tiles, splits)](
                *(q, k_pages, v_pages, cells.table, cells.visible, out, part, stat),
                *(cells.table.stride(0), self.pool.size, dim**-0.5),
                HEADS=heads,
                KV_HEADS=kv_heads,
                WIDTH=width,
                DIM=dim,
                DIM_PAD=padded,
                SPLITS=splits,
                TILES=tiles,
                PRECISION=self._precision,
                BM=block,
                BN=64 if dim <= 128 else 32,
                num_warps=4,
                num_stages=2,
            )
            if splits > 1:
                combine_kernel[(tokens * heads,)](
                    part, stat, out, DIM=dim, DIM_PAD=padded, SPLITS=splits, num_warps=1
                )
            return out.view(tokens, -1)

        return attend


def _joined(*parts: nn.Linear) -> Tensor:
    weight = torch.cat([part.weight.data for part in parts])
    for part, view in zip(parts, weight.split([p.out_features for p in parts]), strict=True):
        part.weight.data = view
    return weight
