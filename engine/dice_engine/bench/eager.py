"""Decoding as published code on top of transformers does it: eager, one sequence, a cache that grows by concatenation,
a forward for every step and one more to commit each block. What ``dice bench decode`` compares with."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from dice_engine.model.network import Attend, SdarModel, masked_attention


class DynamicCache:
    """Keys and values of the committed blocks, one tensor a layer."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, mask: Tensor | None, store: bool) -> Attend:
        inner = masked_attention(mask) if mask is not None else None

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if layer in self.layers:
                before = self.layers[layer]
                k, v = torch.cat((before[0], k), 2), torch.cat((before[1], v), 2)
            if store:
                self.layers[layer] = (k, v)
            if inner is not None:
                return inner(layer, q, k, v)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        return attend


@torch.inference_mode()
def decode_plainly(model: SdarModel, prompt: Tensor, new: int) -> tuple[list[int], float, int]:
    """Decode ``new`` tokens after ``prompt [1, P]`` (whole blocks), low-confidence static, a step a token.

    Returns the tokens, the seconds without the prefill, and the number of forwards.
    """
    size, cache, length = model.config.block_size, DynamicCache(), prompt.shape[1]
    at = torch.arange(length, device=prompt.device)
    mask = at[:, None] // size >= at[None, :] // size
    model.backbone(prompt, attend=cache.attend(mask, store=True))
    _wait(prompt)
    start, forwards, reply = time.perf_counter(), 0, []
    for begin in range(length, length + new, size):
        positions = torch.arange(begin, begin + size, device=prompt.device)
        block = torch.full((1, size), model.config.mask_token_id, device=prompt.device)
        while bool((block == model.config.mask_token_id).any()):
            logits = model(block, positions=positions, attend=cache.attend(None, store=False)).float()
            logits[..., model.config.mask_token_id] = -torch.inf
            confidence, tokens = logits.softmax(-1).max(-1)
            confidence = torch.where(block == model.config.mask_token_id, confidence, -1.0)
            best = int(confidence.argmax())
            block[0, best] = tokens[0, best]
            forwards += 1
        model.backbone(block, positions=positions, attend=cache.attend(None, store=True))
        forwards += 1
        reply += block[0].tolist()
    _wait(prompt)
    return reply, time.perf_counter() - start, forwards


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()
