"""How the kernels of a pass follow each other: on Hopper and later, one begins while the former one ends."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton.language as tl
from triton.backends.nvidia.compiler import CUDAOptions


def launch_options(device: torch.device) -> dict[str, Any]:
    """What every launch of our kernels is given: see ``after_former`` in ``kernels.py``."""
    return {"PDL": True, "launch_pdl": True} if _overlaps(device) else {"PDL": False}


@cache
def _overlaps(device: torch.device) -> bool:
    """Whether this GPU and this Triton know programmatic dependent launches."""
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= (9, 0)
        and hasattr(CUDAOptions, "launch_pdl")
        and hasattr(getattr(tl.extra, "cuda", None), "gdc_wait")
    )
