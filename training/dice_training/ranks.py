"""The processes of one training run: one, or as many as ``torchrun`` started, each with its own part of a batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """Which process this is. With ``count`` 1 every method leaves its argument as it is."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process reports and saves."""
        return self.rank == 0

    def agreed(self, *values: float) -> tuple[float, ...]:
        """What the first process says. Clocks and signals differ, and all must take the same number of steps."""
        if self.count == 1:
            return values
        told = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(told, 0)
        return tuple(told.tolist())

    def total(self, value: Tensor) -> Tensor:
        """The sum of ``value`` over all processes, on its own device."""
        if self.count > 1:
            dist.all_reduce(value)
        return value

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Every gradient becomes the sum of all processes' gradients."""
        if self.count == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, summed in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(summed.view_as(gradient))


ALONE = Ranks()


def first_rank() -> bool:
    """Whether this process is the first one, known before any has joined."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started, if it did; on a GPU machine each takes the GPU of its number."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Ranks(dist.get_rank(), count)
    finally:
        dist.destroy_process_group()
