"""Device memory with guard zones: a write outside a buffer is seen, a far one ends the process.

Layout of one buffer: ``[guard | data | guard]``, both guards at least 4 KiB of bytes that differ from buffer to
buffer, so that copying one guard over another shows too. On the CPU each buffer has its own mapping whose last page
cannot be touched; data starts at a multiple of 256 bytes, like ``cudaMalloc`` memory.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

GUARD_BYTES = 4096
_START = GUARD_BYTES
"""Offset of the data: a multiple of 256, like the allocator's own alignment."""
_PAGE = mmap.PAGESIZE


@dataclass
class _Block:
    name: str
    data: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor
    pattern_before: torch.Tensor
    pattern_after: torch.Tensor


class _DeviceBytes:
    """A slice of a CUDA tensor that torch takes as memory of its own (and keeps alive)."""

    def __init__(self, owner: torch.Tensor, start: int, size: int):
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (owner.data_ptr() + start, False),
            "version": 3,
        }


class Arena:
    """Allocates guarded tensors on one device and says whose guards were damaged.

    Tensors stay valid as long as something refers to them; ``reset`` only stops watching them.
    """

    def __init__(self, device: torch.device, seed: int = 0):
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self._noise = torch.randint(0, 256, (1 << 16,), dtype=torch.uint8, generator=generator)
        self._blocks: list[_Block] = []
        self._shift = 0

    def empty(self, count: int, dtype: torch.dtype, name: str = "buffer") -> torch.Tensor:
        """A flat tensor of ``count`` elements, contents undefined."""
        if count == 0:
            return torch.empty(0, dtype=dtype, device=self.device)
        size = count * dtype.itemsize
        raw, data = self._map(size) if self.device.type == "cpu" else self._carve(size)
        before, after = raw[_START - GUARD_BYTES : _START], raw[_START + size :]
        block = _Block(
            name, data.view(dtype), before, after, self._pattern(GUARD_BYTES), self._pattern(after.numel())
        )
        block.before.copy_(block.pattern_before)
        block.after.copy_(block.pattern_after)
        self._blocks.append(block)
        return data.view(dtype)

    def strided(
        self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, name: str
    ) -> torch.Tensor:
        """A tensor of any strides whose storage is exactly as long as it needs."""
        if math.prod(shape) == 0:
            return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)
        count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        return self.empty(count, dtype, name).as_strided(shape, strides)

    def like(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A guarded copy of ``tensor`` with its strides."""
        copy = self.strided(tensor.shape, tensor.stride(), tensor.dtype, name)
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            index = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
            copy[index].copy_(tensor[index])
        else:
            copy.copy_(tensor)
        return copy

    def contents(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and flat data of every watched buffer."""
        for block in self._blocks:
            yield block.name, block.data

    def zones(self) -> Iterator[tuple[int, int, str]]:
        """Every guard zone: its first address, the one after its last, and where it lies (``past the end of dst``)."""
        for block in self._blocks:
            for guard, where in ((block.before, "before the start of"), (block.after, "past the end of")):
                yield guard.data_ptr(), guard.data_ptr() + guard.numel(), f"{where} {block.name}"

    def damage(self) -> str | None:
        """The first damaged guard in words (``3 elements past the end of dst``), None when all are whole."""
        for block in self._blocks:
            after = block.after != block.pattern_after
            if bool(after.any()):
                offset = int(after.nonzero()[0])
                return f"wrote past the end of {block.name} ({int(after.sum())} bytes changed from byte +{offset})"
            before = block.before != block.pattern_before
            if bool(before.any()):
                offset = GUARD_BYTES - int(before.nonzero()[-1])
                return f"wrote before the start of {block.name} ({int(before.sum())} bytes changed from byte -{offset})"
        return None

    def _map(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        usable = -(-(_START + size + GUARD_BYTES) // _PAGE) * _PAGE
        mapping = mmap.mmap(-1, usable + _PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + usable), ctypes.c_size_t(_PAGE), 0)
        raw = torch.frombuffer(mapping, dtype=torch.uint8, count=usable)
        # A second tensor over the same mapping: its storage begins at the data, as an allocator's would.
        return raw, torch.frombuffer(mapping, dtype=torch.uint8, offset=_START, count=size)

    def _carve(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        raw = torch.empty(_START + size + GUARD_BYTES, dtype=torch.uint8, device=self.device)
        return raw, torch.as_tensor(_DeviceBytes(raw, _START, size), device=self.device)

    def _pattern(self, size: int) -> torch.Tensor:
        self._shift = (self._shift + 4111) % (1 << 15)
        noise = self._noise[self._shift : self._shift + min(size, 1 << 15)]
        if noise.numel() < size:
            noise = noise.repeat(-(-size // noise.numel()))[:size]
        return noise.to(self.device)
