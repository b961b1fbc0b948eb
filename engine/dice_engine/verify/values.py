"""Values that programs take and give: where they lie, what bits they have."""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch

from dice_engine.verify.protocol import DTYPES, dtype_name


def seed_all(seed: int) -> None:
    """Seed every generator that a program may draw from."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % (1 << 32))


def on_device(value: Any, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """``value`` with its tensors on ``device`` (floating ones in ``dtype``), strides kept."""
    if isinstance(value, torch.Tensor):
        target = dtype if dtype is not None and value.dtype.is_floating_point else value.dtype
        return value.detach().to(device=device, dtype=target)
    if isinstance(value, list | tuple):
        return type(value)(on_device(item, device, dtype) for item in value)
    if isinstance(value, dict):
        return {key: on_device(item, device, dtype) for key, item in value.items()}
    return value


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_of(item)]


def shared_memory(outputs: Any, given: Any) -> list[str]:
    """Which output tensors lie in the memory of which inputs or of which outputs before them."""
    others = [
        (f"input {index}", span) for index, tensor in enumerate(tensors_of(given)) if (span := _span(tensor))
    ]
    found = []
    for index, tensor in enumerate(tensors_of(outputs)):
        span = _span(tensor)
        if span is None:
            continue
        found += [f"{index} in {name}" for name, other in others if _overlap(span, other)]
        others.append((f"output {index}", span))
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int, bool] | None:
    """First byte, the one after the last of what it would take contiguous, and whether it is."""
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or not tensor.numel():
        return None
    start = tensor.data_ptr()
    return start, start + tensor.nbytes, tensor.is_contiguous()


def _overlap(one: tuple[int, int, bool], other: tuple[int, int, bool]) -> bool:
    """Columns of one buffer lie between one another, not in one another."""
    if one[2] and other[2]:
        return one[0] < other[1] and other[0] < one[1]
    return one[0] == other[0]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, flat."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)


def digest(tensor: torch.Tensor) -> str:
    """A digest of the bits, '' for a dtype that no message carries."""
    if dtype_name(tensor.dtype) not in DTYPES:
        return ""
    array: Any = bits(tensor).cpu().numpy()
    return hashlib.blake2b(array, digest_size=16).hexdigest()
