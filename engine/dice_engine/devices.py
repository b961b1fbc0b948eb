"""Which GPU there is, asked of the driver itself: no torch, no import that costs seconds."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dice_engine.wire import Device


def without_doubt(device: Device) -> Device:
    """``auto`` is ``cpu`` where there is no GPU, so that what is kept by device is not kept twice."""
    return "cpu" if device == "auto" and gpu_name() is None else device


@cache
def gpu_name() -> str | None:
    """The name of the first CUDA device that is visible here; None where there is none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value < 1:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuDeviceGet(ctypes.byref(device), 0) != 0 or driver.cuDeviceGetName(name, 256, device) != 0:
        return None
    return name.value.decode(errors="replace")
