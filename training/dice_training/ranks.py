"""The processes of one training run: one, or as many as ``torchrun`` started, each with its own part of a batch."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

_LOST = ("closed by peer", "reset by peer", "Broken pipe", "NCCL", "gloo", "Connection refused")
"""In the words of a collective that has failed because another process has gone."""


class PeerLost(Exception):
    """Another process of the run has ended, and so must this one."""


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
def joined(group: bool = False) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started, if it did; on a GPU machine each takes the GPU of its number.

    With ``group`` also a process that is alone gets a process group: FSDP2 works in one. Raises :class:`PeerLost` in
    the place of the error of a collective that failed because another process has ended.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 and not group:
        yield Ranks()
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    if count == 1:
        store = dist.HashStore()  # type: ignore[reportPrivateImportUsage]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    else:
        dist.init_process_group(backend)
    whole = count == 1
    try:
        yield Ranks(dist.get_rank(), count)
        whole = True
    except RuntimeError as error:
        if count > 1 and any(words in str(error) for words in _LOST):
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # torchrun's, before this process has said why it ends
            raise PeerLost("another process of this run has ended") from error
        raise
    finally:
        if whole:  # else it could wait for ever for processes that are gone
            dist.destroy_process_group()


def said_first(line: str) -> bool:
    """Whether no other process of the run has said ``line`` before: so what all of them find is told once.

    Known from the store of ``torchrun``, which lives as long as any of them; elsewhere every process speaks.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        wait = timedelta(seconds=5)
        store = dist.TCPStore(host, port, is_master=False, timeout=wait)  # type: ignore[reportPrivateImportUsage]
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return store.add(f"dice/{attempt}/{hashlib.sha256(line.encode()).hexdigest()}", 1) == 1
    except RuntimeError:
        return True
