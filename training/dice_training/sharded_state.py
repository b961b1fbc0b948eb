"""The state of a run whose weights are cut over its processes: each writes its part, while the training goes on.

``state/step-00000040/`` holds a safetensors file for each process and ``progress.json``, which comes last: a folder
without it is not whole. Any number of processes reads it, each the slices that it needs. torch.distributed.checkpoint
does this; its own storage pickles its index, so it is given its safetensors storage, whose index is the files' JSON
headers. Reading a state from someone else runs nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import WriteResult

from dice_training.checkpoint import Progress, progress_of
from dice_training.recipe import RecipeError

FOLDER = "state"
PROGRESS = "progress.json"


class ShardedState:
    """The states of the run in ``output``, of which the last whole one is kept. All processes call every method."""

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER
        self._first = dist.get_rank() == 0
        # A group of its own: the thread that writes must not meet the training's collectives.
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        self._group = group
        self._writing: Future[Any] | None = None

    def save(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """Copy ``tensors`` to the host's memory and write them from there in a thread."""
        self.wait()
        place = self.folder / f"step-{progress.step:08d}"
        if (place / PROGRESS).is_file():
            return
        if self._first:
            shutil.rmtree(place, ignore_errors=True)  # what a run that was killed has left
        dist.barrier(self._group)
        writer = _Writer(place, json.dumps(asdict(progress)))
        content: dict[str, Any] = {name: tensor.detach() for name, tensor in tensors.items()}
        writing = async_save(content, storage_writer=writer, process_group=self._group)
        assert isinstance(writing, Future)
        self._writing = writing

    def wait(self) -> None:
        """Until what is being written is whole. Raises RecipeError where it cannot be."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except (CheckpointException, OSError) as error:
            raise RecipeError(f"{self.folder}: the state cannot be written: {_reason(error)}") from error

    def load(self, tensors: dict[str, Tensor]) -> Progress:
        """Fill ``tensors`` from the last whole state. Raises RecipeError where there is none that fits."""
        self.wait()
        place = last(self.folder)
        if place is None:
            raise RecipeError(f"{self.folder}: nothing to resume there")
        content: dict[str, Any] = {name: tensor.detach() for name, tensor in tensors.items()}
        try:
            progress = progress_of(json.loads((place / PROGRESS).read_text(encoding="utf-8")))
            reader = HuggingFaceStorageReader(str(place))
            load(content, storage_reader=reader, process_group=self._group)
        except (CheckpointException, SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
            raise RecipeError(f"{place}: not a state of this run: {_reason(error)}") from error
        return progress


class _Writer(HuggingFaceStorageWriter):
    """Marks the state as whole when the last process has written, and removes the older ones."""

    def __init__(self, place: Path, progress: str) -> None:
        super().__init__(str(place), save_distributed=True)
        self._place, self._progress = place, progress

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        part = self._place / (PROGRESS + ".part")
        part.write_text(self._progress, encoding="utf-8")
        part.replace(self._place / PROGRESS)
        for older in self._place.parent.iterdir():
            if older != self._place:
                shutil.rmtree(older, ignore_errors=True)


def last(folder: Path) -> Path | None:
    """The last whole state in ``folder``."""
    return max((path.parent for path in folder.glob(f"step-*/{PROGRESS}")), default=None)


def saved_step(output: Path) -> int | None:
    """The step of the last whole state of the sharded run in ``output``."""
    place = last(output / FOLDER)
    return None if place is None else int(place.name.removeprefix("step-"))


def begin(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Make the optimizers' tensors, as they are before the first step, so that a state can be read into them."""
    for optimizer in optimizers:
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def _reason(error: BaseException) -> str:
    """The first line of the first cause."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return (str(error).splitlines() or [type(error).__name__])[0]
