"""The state of a run in one file, from which it goes on bit for bit: weights, average, optimizers, and where it stood.

Tensors in safetensors, the rest as JSON in its header. Nothing is pickled: a state may come from someone else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dice_training.feed import Place
from dice_training.recipe import RecipeError

FILE = "state.safetensors"


@dataclass(frozen=True)
class Progress:
    """How far a run is. Its noise and order are functions of the recipe's seed and of ``place``."""

    step: int = 0
    seconds: float = 0.0
    """Spent training so far, over all commands."""
    place: Place = field(default_factory=Place)
    data: str = ""
    """Fingerprint of the samples that ``place`` is about."""


def save_state(
    folder: Path,
    weights: dict[str, Tensor],
    average: dict[str, Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
    progress: Progress,
) -> None:
    write_state(folder, named(weights, average, optimizers), asdict(progress))


def named(
    weights: dict[str, Tensor], average: dict[str, Tensor], optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Tensor]:
    """Every tensor of a run's state (not copied) by the name that it has on disk."""
    tensors = {f"weights.{name}": tensor for name, tensor in weights.items()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.items()}
    for number, optimizer in enumerate(optimizers):
        for index, entry in optimizer.state_dict()["state"].items():
            for name, value in entry.items():
                tensors[f"optimizer.{number}.{index}.{name}"] = value
    return tensors


def write_state(folder: Path, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """``progress`` as JSON in the header of the tensors' file. The old state stays until the new one is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (FILE + ".part")
    content = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(content, part, metadata={"progress": json.dumps(progress)})
    part.replace(folder / FILE)


def read_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`write_state` wrote. Raises RecipeError where there is no state."""
    path = folder / FILE
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            progress = json.loads(file.metadata()["progress"])
            return {name: file.get_tensor(name) for name in file.keys()}, progress  # noqa: SIM118  (not a dict)
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: nothing to resume there") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RecipeError(f"{path}: not the state of a run: {error}") from error


def load_state(
    folder: Path,
    weights: dict[str, Tensor],
    average: dict[str, Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
) -> Progress:
    """Fill ``weights``, ``average`` and ``optimizers`` from ``folder``; another model's state is an error."""
    path = folder / FILE
    tensors, progress = read_state(folder)
    with torch.no_grad():
        for kind, targets in (("weights", weights), ("average", average)):
            for name, target in targets.items():
                source = tensors.get(f"{kind}.{name}")
                if source is None or source.shape != target.shape:
                    raise RecipeError(f"{path}: the state of another model ({name} does not fit)")
                target.copy_(source)
    for number, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(f"optimizer.{number}."):
                _, _, index, key = name.split(".")
                state.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return progress_of(progress)


def progress_of(record: dict[str, Any]) -> Progress:
    """What ``asdict`` made of a :class:`Progress`."""
    return Progress(**{**record, "place": Place(**record["place"])})
