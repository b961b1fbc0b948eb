"""The DICE engine: source understanding, block-diffusion decoding and verification."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dice_engine.model.network import SdarModel

NANO = Path(__file__).parent / "checkpoints" / "nano"
"""The embedded default checkpoint."""


def load(path: str | Path | None = None, device: str = "auto", dtype: Any = None) -> SdarModel:
    """The network of a checkpoint folder or Hugging Face id (None: the embedded nano), ready to call and to
    ``generate`` with.

    ``device``: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``. ``dtype``: a torch dtype or its
    name; None picks float32 on a CPU and the checkpoint's own on a GPU. Raises
    :class:`dice_engine.model.config.CheckpointError` for a folder that cannot be used.
    """
    # By name: the language server imports this package and must not reach torch, not even on paper.
    return importlib.import_module("dice_engine.loading").load(path or NANO, device, dtype)


def _watch_for_transformers() -> None:
    from dice_engine.registration import watch

    watch()


_watch_for_transformers()
