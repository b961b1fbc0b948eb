"""The network of a decoding pass in a few fused kernels a layer: the fast twin of ``SdarModel`` over paged attention.

At small batches a pass is reading the weights once, so each matrix product is one kernel with what stands before and
after it (norm, gate, residual); at large ones the library's products are faster, and the rest is fused around them.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import triton
from torch import Tensor, nn

from dice_engine.decode.kernels import (
    attention_kernel,
    gate_kernel,
    linear_kernel,
    norm_kernel,
    prepare_kernel,
)
from dice_engine.decode.paged import Cells
from dice_engine.decode.pages import PagePool
from dice_engine.model.network import DecoderLayer, SdarModel

FEW_TOKENS = 64
"""Up to this many, products are ours; beyond, the library's."""
_PROGRAMS = 264
"""Attention is split until there are about this many programs: two for each multiprocessor of a large GPU."""
_MAX_SPLITS = 32


@dataclass(frozen=True)
class _Layer:
    qkv: Tensor
    gate_up: Tensor
    out: Tensor
    down: Tensor
    input_norm: Tensor
    post_norm: Tensor
    q_norm: Tensor
    k_norm: Tensor


class FusedNetwork:
    """Runs ``model`` over ``pool``. The model's q, k, v and gate, up matrices become parts of one matrix each, in
    place: the parameters stay what they are, as views of it."""

    def __init__(self, model: SdarModel, pool: PagePool) -> None:
        config = model.config
        self.model, self.pool, self.config = model, pool, config
        half = torch.arange(0, config.head_dim, 2, device=model.device, dtype=torch.float32)
        self._frequencies = config.rope_theta ** -(half / config.head_dim)
        self._precision = "ieee" if model.dtype == torch.float32 else "tf32"
        self._layers = [_fuse(cast(DecoderLayer, layer)) for layer in model.model.layers]

    def hidden(self, ids: Tensor, cells: Cells) -> Tensor:
        """The residual stream ``[tokens, hidden]`` after the last layer, before the final norm."""
        c, eps = self.config, self.config.rms_norm_eps
        x = nn.functional.embedding(ids, self.model.model.embed_tokens.weight)
        attend = self._attention(cells)
        for number, layer in enumerate(self._layers):
            qkv = self._linear(x, layer.qkv, norm=layer.input_norm)
            q = x.new_empty(x.shape[0], c.num_attention_heads, c.head_dim)
            k_pages, v_pages = self.pool.k[number], self.pool.v[number]
            prepare_kernel[(x.shape[0], c.num_attention_heads + 2 * c.num_key_value_heads)](
                *(qkv, layer.q_norm, layer.k_norm, self._frequencies, cells.positions, cells.slots),
                *(q, k_pages, v_pages, eps),
                HEADS=c.num_attention_heads,
                KV_HEADS=c.num_key_value_heads,
                DIM=c.head_dim,
                HALF=triton.next_power_of_2(c.head_dim // 2),
                num_warps=1,
            )
            x = self._linear(attend(q, k_pages, v_pages), layer.out, add=x)
            gated = self._linear(x, layer.gate_up, norm=layer.post_norm, gated=True)
            x = self._linear(gated, layer.down, add=x)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """``[tokens, vocab]`` of the residual stream of tokens."""
        return self._linear(hidden, self.model.lm_head.weight, norm=self.model.model.norm.weight)

    def _linear(
        self,
        x: Tensor,
        weight: Tensor,
        norm: Tensor | None = None,
        add: Tensor | None = None,
        gated: bool = False,
    ) -> Tensor:
        (m, k), n = x.shape, weight.shape[0] // (2 if gated else 1)
        if m > FEW_TOKENS:
            return self._large(x, weight, norm, add, gated)
        out = x.new_empty(m, n)
        rows = max(16, triton.next_power_of_2(m))
        cols, depth, warps, stages = _tiles(n, rows)
        linear_kernel[(triton.cdiv(n, cols), 1)](
            *(x, weight, x if norm is None else norm, x if add is None else add, out),
            *(m, n, k, self.config.rms_norm_eps),
            NORM=norm is not None,
            GATED=gated,
            ADD=add is not None,
            PRECISION=self._precision,
            BM=rows,
            BN=cols,
            BK=depth,
            num_warps=warps,
            num_stages=stages,
        )
        return out

    def _large(
        self, x: Tensor, weight: Tensor, norm: Tensor | None, add: Tensor | None, gated: bool
    ) -> Tensor:
        m, k = x.shape
        if norm is not None:
            normed = torch.empty_like(x)
            norm_kernel[(m,)](
                x, norm, normed, k, self.config.rms_norm_eps, BLOCK=triton.next_power_of_2(k), num_warps=8
            )
            x = normed
        out = torch.mm(x, weight.t()) if add is None else torch.addmm(add, x, weight.t())
        if not gated:
            return out
        n = weight.shape[0] // 2
        result = x.new_empty(m, n)
        gate_kernel[(triton.cdiv(n, 1024), m)](out, result, n, BLOCK=1024)
        return result

    def _attention(self, cells: Cells) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        c = self.config
        tokens, width = cells.slots.shape[0], cells.width
        rows, kv_heads, dim = tokens // width, c.num_key_value_heads, c.head_dim
        queries = c.num_attention_heads // kv_heads * width
        block = min(64, max(16, triton.next_power_of_2(queries)))
        tiles = triton.cdiv(queries, block)
        splits = max(1, min(_MAX_SPLITS, _PROGRAMS // (rows * kv_heads * tiles)))
        padded = max(16, triton.next_power_of_2(dim))
        units = rows * kv_heads * tiles
        device = cells.slots.device
        part = torch.empty(units, splits, block, padded, device=device, dtype=torch.float32)
        stat = torch.empty(units, splits, 2, block, device=device, dtype=torch.float32)
        # Each launch leaves its counters at zero.
        counts = torch.zeros(units, dtype=torch.int32, device=device)

        def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor) -> Tensor:
            out = torch.empty_like(q)
            attention_kernel[(rows, kv_heads * tiles, splits)](
                *(q, k_pages, v_pages, cells.table, cells.visible, out, part, stat, counts),
                *(cells.table.stride(0), self.pool.size, dim**-0.5),
                HEADS=c.num_attention_heads,
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
            return out.view(tokens, -1)

        return attend


def _tiles(n: int, rows: int) -> tuple[int, int, int, int]:
    """Columns, depth, warps and stages of a product's programs."""
    return (16 if n <= 4096 else 32), (256 if rows == 16 else 128), 4, 4


def _fuse(layer: DecoderLayer) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
    gate_up = _joined(mlp.gate_proj, mlp.up_proj)
    return _Layer(
        qkv,
        gate_up,
        attention.o_proj.weight.data,
        mlp.down_proj.weight.data,
        layer.input_layernorm.weight.data,
        layer.post_attention_layernorm.weight.data,
        attention.q_norm.weight.data,
        attention.k_norm.weight.data,
    )


def _joined(*parts: nn.Linear) -> Tensor:
    weight = torch.cat([part.weight.data for part in parts])
    for part, view in zip(parts, weight.split([p.out_features for p in parts]), strict=True):
        part.weight.data = view
    return weight
