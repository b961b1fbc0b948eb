"""``dice_engine.load``: a checkpoint folder on a device, by the names a user would give."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from dice_engine.model.config import CheckpointError
from dice_engine.model.network import SdarModel
from dice_engine.model.weights import DTYPES, load_model

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors"]


def checkpoint_folder(path: str | Path) -> Path:
    """The folder of a checkpoint: ``path`` itself, or where the files of a Hugging Face id such as
    ``JetLM/SDAR-1.7B-Chat`` are kept, downloaded with a progress bar if need be.

    Raises :class:`CheckpointError` when there is no such folder and no such download.
    """
    folder = Path(path)
    if folder.exists() or not _HUB_ID.fullmatch(str(path)):
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(path), allow_patterns=_HUB_FILES))
    except Exception as error:  # a dozen types, of the hub, the network and the disk
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{path}: no such checkpoint folder, and it cannot be fetched from Hugging Face: {reason}"
        ) from None


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
    return load_model(checkpoint_folder(path), device, dtype)
