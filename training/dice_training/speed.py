"""What a batch costs in floating-point operations, and which share of the GPU's peak that is (MFU)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from dice_engine.model.config import SdarConfig

from dice_training.gpus import GPUS


@dataclass
class Work:
    """What one or more batches hold, padding excluded."""

    positions: int = 0
    """Of both copies of the sequence."""
    pairs: int = 0
    """Queries times the keys they see."""
    hidden: int = 0
    """Tokens that go through the head."""

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def training_flops(config: SdarConfig, work: Work) -> float:
    """Of a forward and a backward pass: 6 a weight and position, 12 a visible pair and attention channel.

    Nothing that is done twice (checkpointing) or thrown away (masked parts of tiles) counts.
    """
    attention = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    layer = config.hidden_size * (2 * attention + 2 * kv + 3 * config.intermediate_size)
    head = config.hidden_size * config.vocab_size
    layers = config.num_hidden_layers
    return (
        6.0 * (layers * layer * work.positions + head * work.hidden) + 12.0 * layers * attention * work.pairs
    )


def peak_flops(device: torch.device) -> float | None:
    """The device's dense bf16 peak; None where it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((gpu.flops for part, gpu in GPUS.items() if part in name), None)
