"""Low-rank adapters for models whose weights and optimizer state would not fit a GPU in float32 (arXiv 2106.09685).

The weights stay frozen in bf16; the adapters, by peft, are trained in float32 and added to the weights when a
checkpoint is saved, so that what is saved is a plain checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from dice_engine.model.network import SdarModel
from torch import nn

_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def add_adapters(model: SdarModel, rank: int) -> None:
    """Freeze ``model`` and give every matrix of its layers an adapter of ``rank``, in place."""
    from peft import LoraConfig, inject_adapter_in_model

    model.requires_grad_(False)
    # Scaled by 2: the usual alpha = 2 rank.
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_TARGETS), model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


@contextmanager
def merged(model: SdarModel) -> Iterator[SdarModel]:
    """``model`` with its adapters, if it has any, added to its weights; afterwards it is exactly as before."""
    found: list[tuple[nn.Module, str, Any]] = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if hasattr(child, "lora_A")
    ]
    kept: list[tuple[nn.Parameter, torch.Tensor]] = []
    try:
        for parent, name, adapted in found:
            weight = adapted.get_base_layer().weight
            kept.append((weight, weight.data))
            delta = adapted.get_delta_weight("default").float()
            weight.data = (weight.data.float() + delta).to(weight.dtype)
            setattr(parent, name, adapted.get_base_layer())
        yield model
    finally:
        for weight, data in kept:
            weight.data = data
        for parent, name, adapted in found:
            setattr(parent, name, adapted)
