"""int8 weights on disk: one symmetric scale for each output row, dequantised when loaded.

A matrix ``X.weight`` is stored as int8 next to ``X.weight_scale`` (float16, one a row); norms stay as they are.
``config.json`` then says ``"quantization": {"method": "int8-rowwise"}``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

METHOD = "int8-rowwise"
SCALE_SUFFIX = "_scale"


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 ``[out, in]`` and float16 scale ``[out]`` with ``weight ~ int8 * scale[:, None]``."""
    weight = weight.float()
    scale = (weight.abs().amax(dim=1) / 127.0).clamp_min(2.0**-20).half()
    # Divide by the rounded scale, so that the float16 rounding does not add to the error.
    values = (weight / scale.float()[:, None]).round().clamp(-127, 127)
    return values.to(torch.int8), scale


def dequantize_rows(values: Tensor, scale: Tensor) -> Tensor:
    """float32 ``[out, in]``."""
    return values.float() * scale.float()[:, None]


def pack(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every matrix of a state dict as int8 and its scale; vectors (norms) in float16."""
    packed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.dim() == 2:
            packed[name], packed[name + SCALE_SUFFIX] = quantize_rows(tensor)
        else:
            packed[name] = tensor.half()
    return packed


def fake_quantize(weight: Tensor) -> Tensor:
    """The weight as it will be after saving and loading, for measuring the loss of packing."""
    return dequantize_rows(*quantize_rows(weight)).to(weight.dtype)
