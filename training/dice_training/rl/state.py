"""What a run needs to go on exactly where it was, in one file: weights and AdamW's moments in float32, the curricula.

Tensors in safetensors, the rest as JSON in its header; nothing is pickled. Draws and seeds are functions of the
recipe's seed and the step, so there is no generator to keep.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from dice_engine.model.network import SdarModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from dice_training.recipe import RecipeError
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.recipe import RlRecipe

FILE = "state.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_FREE = ("save_every", "workers", "phases")
"""Keys that may change when a run goes on; of the phases only their numbers of steps."""


def save_state(
    folder: Path,
    recipe: RlRecipe,
    step: int,
    model: SdarModel,
    optimizer: torch.optim.Optimizer,
    curricula: Sequence[Curriculum],
) -> None:
    """``step`` steps are done. The old state stays until the new one is whole."""
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[f"weights.{name}"] = parameter.detach().contiguous()
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}.{name}"] = value.detach().contiguous()
    records = [curriculum.to_json() for curriculum in curricula]
    progress = {"step": step, "recipe": asdict(recipe), "curricula": records}
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (FILE + ".part")
    save_file(tensors, part, metadata={"progress": json.dumps(progress)})
    part.replace(folder / FILE)


def load_state(
    folder: Path,
    recipe: RlRecipe,
    model: SdarModel,
    optimizer: torch.optim.Optimizer,
    curricula: Sequence[Curriculum],
) -> int:
    """Restore everything in place and return the number of steps that are done. Raises RecipeError where there is no
    state, or one of another recipe."""
    path = folder / FILE
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            progress = json.loads(file.metadata()["progress"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: nothing to resume there") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RecipeError(f"{path}: not the state of a run: {error}") from error
    _same(progress["recipe"], json.loads(json.dumps(asdict(recipe))), path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"weights.{name}"])
            if f"step.{name}" in tensors:
                optimizer.state[parameter] = {
                    key: tensors[f"{key}.{name}"].to(parameter.device) for key in _MOMENTS
                }
    for curriculum, records in zip(curricula, progress["curricula"], strict=True):
        curriculum.restore(records)
    return int(progress["step"])


def _same(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    def phases(table: dict[str, Any]) -> list[tuple[str, str]]:
        return [(phase["kind"], phase["data"]) for phase in table["phases"]]

    changed = [key for key in new if key not in _FREE and old.get(key) != new[key]]
    if phases(old) != phases(new):
        changed.append("phase")
    if changed:
        raise RecipeError(
            f"{path}: the state of a run with another '{changed[0]}'; start anew without --resume"
        )
