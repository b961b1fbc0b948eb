"""Whether the machine should be left alone: on battery, or busy with other work. Asked before work nobody waits for."""

from __future__ import annotations

import os
from pathlib import Path

_SUPPLIES = Path("/sys/class/power_supply")
_BUSY = 2.0
"""Runnable processes a core."""


def on_battery(supplies: Path = _SUPPLIES) -> bool:
    """Whether a battery is being emptied. Where the system does not say so (no Linux): False."""
    try:
        return any(
            (supply / "type").read_text().strip() == "Battery"
            and (supply / "status").read_text().strip() == "Discharging"
            for supply in supplies.iterdir()
        )
    except OSError:
        return False


def busy() -> bool:
    """Whether the last minute's load is above two processes a core."""
    if not hasattr(os, "getloadavg"):
        return False
    return os.getloadavg()[0] > _BUSY * (os.cpu_count() or 1)
