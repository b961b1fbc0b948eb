"""``dice_engine.load``: a checkpoint folder on a device, by the names a user would give."""

from __future__ import annotations

from pathlib import Path

import torch

from dice_engine.model.config import CheckpointError
from dice_engine.model.network import SdarModel
from dice_engine.model.weights import DTYPES, load_model


def load(path: str | Path, device: str = "auto", dtype: torch.dtype | str | None = None) -> SdarModel:
    """See :func:`dice_engine.load`."""
    if isinstance(dtype, str):
        if dtype not in DTYPES:
            raise CheckpointError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
        dtype = DTYPES[dtype]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CheckpointError(f"device {device}: torch sees no CUDA GPU here; use --device cpu or auto")
    return load_model(path, device, dtype)
