"""The GPUs that training is planned for and its speed measured against, by the vendor's data sheets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    flops: float
    """Dense bf16, FLOP/s."""
    memory: int
    """Bytes that a program can have."""
    bandwidth: float
    """Of its memory, bytes/s."""
    link: float
    """To the other GPUs of a machine, bytes/s one way: NVLink, or PCIe 4.0 x16 where there is none."""


GPUS = {
    "H200": Gpu(989e12, 139 << 30, 4.8e12, 450e9),
    "H100": Gpu(989e12, 79 << 30, 3.35e12, 450e9),
    "A100": Gpu(312e12, 79 << 30, 2.0e12, 300e9),
    "L40S": Gpu(362e12, 44 << 30, 0.86e12, 25e9),
    "RTX 4090": Gpu(165e12, 23 << 30, 1.0e12, 25e9),
}
"""By a part of the device's name; H100 is the SXM one with 80 GB, A100 the SXM one with 80 GB."""
HOST_LINK = 25e9
"""Between a GPU and its host, bytes/s one way: what PCIe 4.0 x16 gives."""
HOST_BANDWIDTH = 200e9
"""Of the host's memory, bytes/s, all its processes together."""
