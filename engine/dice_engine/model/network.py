"""The SDAR network: a Qwen3 decoder whose attention is bidirectional inside blocks and causal between them.

The module holds weights and formulas only. How queries meet keys (masks, caches, kernels) is passed in as
``attend``, so that training, plain forwards and cached decoding share one network. Parameter names are the
published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from dice_engine.model.config import SdarConfig

if TYPE_CHECKING:
    from dice_engine.decode.batch import BatchDecoder
    from dice_engine.decode.generation import Generation

Attend: TypeAlias = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""``attend(layer, q, k, v) -> out``: q and out are ``[batch, heads, n, head_dim]``, k and v have ``kv_heads`` heads.
q and k are normalised and rotated already."""


def staircase_mask(n: int, block_size: int, device: torch.device | str | None = None) -> Tensor:
    """``[n, n]`` bool, True where query i may see key j: floor(j/B) <= floor(i/B)."""
    block = torch.arange(n, device=device) // block_size
    return block[:, None] >= block[None, :]


def masked_attention(mask: Tensor | BlockMask) -> Attend:
    """Attention under a given mask: a flex ``BlockMask``, or a bool tensor that broadcasts to [batch, heads, n, n]."""
    if isinstance(mask, BlockMask):

        def flex(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = flex_attention(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
            assert isinstance(out, Tensor)  # a tuple only with return_lse
            return out

        return flex

    def dense(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1])

    return dense


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32 whatever the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)


def rotary_table(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin in float32, ``[batch, 1, n, head_dim]``, for int positions ``[batch, n]``."""
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angle = positions[:, None, :, None].float() * (theta**-exponent)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of ``[batch, heads, n, head_dim]`` (halves convention), in float32 inside."""
    cos, sin = table
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: SdarConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = d = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.num_attention_heads * d, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * d, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * d, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * d, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(d, config.rms_norm_eps)
        self.k_norm = RMSNorm(d, config.rms_norm_eps)

    def forward(self, x: Tensor, table: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        heads = (*x.shape[:2], -1, self.head_dim)
        q = rotate(self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2), table)
        k = rotate(self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2), table)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        return self.o_proj(attend(self.layer, q, k, v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, config: SdarConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config: SdarConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, table: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), table, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    def __init__(self, config: SdarConfig) -> None:
        super().__init__()
        self.head_dim, self.rope_theta = config.head_dim, config.rope_theta
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, input_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        table = rotary_table(positions, self.head_dim, self.rope_theta)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, table, attend)
        return self.norm(x)


class SdarModel(nn.Module):
    """Token ids in, logits in place out (position i predicts token i)."""

    def __init__(self, config: SdarConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.decoders: dict[int, BatchDecoder] = {}
        """By block size: see ``dice_engine.decode.generation.decoder_of``."""
        self.tie_weights()

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles are of the network: a copy decodes with pages and graphs of its own."""
        return {**self.__dict__, "decoders": {}}

    def tie_weights(self) -> None:
        """Make the head the embedding itself where the config says so."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Random weights: normal with the config's ``initializer_range``; norms at one."""
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, self.config.initializer_range, generator=generator)

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    def backbone(
        self,
        input_ids: Tensor,
        *,
        block_size: int | None = None,
        positions: Tensor | None = None,
        attend: Attend | Tensor | BlockMask | None = None,
    ) -> Tensor:
        """Hidden states ``[batch, n, hidden]`` of ``input_ids [batch, n]``, after the final norm.

        ``positions`` ``[batch, n]`` or ``[n]`` default to 0..n-1. ``attend`` is an attention function, a bool mask
        (True = may see) or a flex ``BlockMask``; by default the staircase mask of ``block_size`` (the config's).
        """
        n = input_ids.shape[1]
        if positions is None:
            positions = torch.arange(n, device=input_ids.device)
        if positions.dim() == 1:
            positions = positions[None]
        if attend is None:
            attend = staircase_mask(n, block_size or self.config.block_size, input_ids.device)
        if isinstance(attend, (Tensor, BlockMask)):
            attend = masked_attention(attend)
        return self.model(input_ids, positions, attend)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits ``[..., vocab]`` of hidden states ``[..., hidden]``."""
        return self.lm_head(hidden)

    def forward(
        self,
        input_ids: Tensor,
        *,
        block_size: int | None = None,
        positions: Tensor | None = None,
        attend: Attend | Tensor | BlockMask | None = None,
    ) -> Tensor:
        """Logits ``[batch, n, vocab]``; arguments as for :meth:`backbone`."""
        return self.head(self.backbone(input_ids, block_size=block_size, positions=positions, attend=attend))

    def generate(
        self, input_ids: Sequence[int] | Tensor, max_new_tokens: int = 256, **options: Any
    ) -> Generation:
        """Decode replies to one prompt; the arguments are those of :func:`dice_engine.decode.generation.generate`."""
        # Decoding uses the network, not the other way round.
        from dice_engine.decode.generation import generate

        return generate(self, input_ids, max_new_tokens, **options)
