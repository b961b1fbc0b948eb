"""The objective's forward pass. On a GPU it is compiled in two small regions: one layer, which serves all layers, and
the head with the loss over a fixed number of hidden tokens.

Compiling one layer takes a fraction of the time of compiling the whole network, and nothing here has a shape that
depends on the data, nor waits for the GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from dice_engine.model.network import RMSNorm, SdarModel, masked_attention, rotary_table
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from dice_training.feed import Inputs
from dice_training.masks import Codes, block_mask, dense_mask, mask_mod
from dice_training.objective import diffusion_loss

LOGITS = 1 << 28
"""At most so many logits are made at a time (1 GiB in float32), and those of at most 4,096 tokens."""


def head_chunk(vocab: int) -> int:
    """Tokens that go through the head at a time."""
    return max(256, min(4096, LOGITS // vocab // 256 * 256))


class Layers:
    """Hidden states ``[rows, length, hidden]`` of a model, before its final norm. Compiled, for GPUs, in bf16."""

    def __init__(self, model: SdarModel, compiled: bool, checkpointing: bool = False) -> None:
        self.model, self.compiled, self.checkpointing = model, compiled, checkpointing
        self.template = copy.deepcopy(model.model.layers[0]).to("meta")
        self.layer = torch.compile(_layer) if compiled else _layer
        self.runs: list[Callable[..., Tensor]] = [
            partial(self.run, dict(layer.named_parameters())) for layer in model.model.layers
        ]
        """One for each layer: ``run(x, cos, sin, mask)``."""

    def __call__(self, ids: Tensor, position: Tensor, mask: Tensor | BlockMask) -> Tensor:
        backbone = self.model.model
        cos, sin = rotary_table(position, backbone.head_dim, backbone.rope_theta)
        x = backbone.embed_tokens(ids)
        if self.compiled:
            x = x.bfloat16()  # the residual stream: in float32 a step of nano takes a fifth more time
        if not x.requires_grad:  # frozen embeddings: to the compiler the first layer shall be like the others
            x.requires_grad_(torch.is_grad_enabled())
        for run in self.runs:
            x = run(x, cos, sin, mask)
        return x

    def run(
        self, parameters: Mapping[str, Tensor], x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | BlockMask
    ) -> Tensor:
        """A layer with its ``parameters``, by their names in the layer."""
        inputs = (self.template, parameters, x, cos, sin, mask)
        if self.checkpointing:
            return checkpoint(self.layer, *inputs, use_reentrant=False)
        return self.layer(*inputs)


class Forward:
    """``loss_sum(inputs)`` of ``model``: the sum over hidden tokens of cross-entropy / p, on ``device``."""

    def __init__(
        self,
        model: SdarModel,
        block_size: int,
        shape: tuple[int, int],
        device: torch.device,
        checkpointing: bool = False,
    ) -> None:
        self.model, self.block_size, self.device = model, block_size, device
        self.compiled = compiled = device.type == "cuda"
        self.chunk = head_chunk(model.config.vocab_size)
        # One set of buffers for every batch: the mask's rule closes over them, so nothing is compiled twice.
        self.codes = Codes(*(torch.zeros(shape, dtype=torch.int32, device=device) for _ in range(3)))
        self.rule = mask_mod(self.codes)
        self.layers = Layers(model, compiled, checkpointing)
        self.head = torch.compile(_head) if compiled else _head
        self.loss_sum: Callable[[Inputs], Tensor] = self.whole_sum

    def whole_sum(self, inputs: Inputs) -> Tensor:
        """``inputs`` must be on the device."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.compiled):
            x = self.layers(inputs.ids, inputs.position, self._mask(inputs.codes))
            return self._head_sum(x, inputs)

    def _mask(self, rows: Codes) -> Tensor | BlockMask:
        if not self.compiled:
            return dense_mask(rows)
        for buffer, values in zip(vars(self.codes).values(), vars(rows).values(), strict=True):
            buffer.copy_(values)
        return block_mask(self.codes, self.block_size, self.rule)

    def _head_sum(self, x: Tensor, inputs: Inputs) -> Tensor:
        """Hidden tokens only, ``chunk`` at a time; compiled, the last chunk is filled up with tokens of weight zero."""
        place, target, weight = inputs.place, inputs.target, inputs.weight
        if self.compiled:
            missing = -len(place) % self.chunk
            place, target, weight = (F.pad(values, (0, missing)) for values in (place, target, weight))
        picked = x.flatten(0, 1).index_select(0, place)
        parts = zip(picked.split(self.chunk), target.split(self.chunk), weight.split(self.chunk), strict=True)
        sums = [self.head(self.model.model.norm, self.model.lm_head, *part) for part in parts]
        return torch.stack(sums).sum()


def _layer(
    layer: nn.Module,
    parameters: Mapping[str, Tensor],
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor | BlockMask,
) -> Tensor:
    """``layer`` with other ``parameters``: to the compiler, all layers differ in their tensors only."""
    return functional_call(layer, dict(parameters), (x, (cos, sin), masked_attention(mask)))


def _head(norm: RMSNorm, head: nn.Linear, x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    return diffusion_loss(head(norm(x)), target, weight, 1)
