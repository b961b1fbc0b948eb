"""Numbers from the host to the device while the device is busy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def uploaded(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """``torch.tensor(values)`` on ``device``; neither waits for the other, as they do when it is not pinned."""
    host = torch.tensor(values, dtype=dtype)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
