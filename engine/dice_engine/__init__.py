"""The DICE engine: source understanding, block-diffusion decoding and verification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dice_engine.model.network import SdarModel

NANO = Path(__file__).parent / "checkpoints" / "nano"
"""The embedded default checkpoint."""


def load(path: str | Path | None = None, device: str = "auto", dtype: Any = None) -> SdarModel:
    """The network of a checkpoint folder (None: the embedded nano), ready to call and to ``generate`` with.

    ``device``: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``. ``dtype``: a torch dtype or its
    name; None picks float32 on a CPU and the checkpoint's own on a GPU. Raises
    :class:`dice_engine.model.config.CheckpointError` for a folder that cannot be used.
    """
    # torch is imported here and not above: the language server imports this package without it.
    import torch

    from dice_engine.model.config import CheckpointError
    from dice_engine.model.weights import DTYPES, load_model

    if isinstance(dtype, str):
        if dtype not in DTYPES:
            raise CheckpointError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
        dtype = DTYPES[dtype]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CheckpointError(f"device {device}: torch sees no CUDA GPU here; use --device cpu or auto")
    return load_model(path or NANO, device, dtype)
