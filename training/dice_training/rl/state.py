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

from dice_training.checkpoint import FILE, read_state, write_state
from dice_training.recipe import RecipeError
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.recipe import RlRecipe

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_FREE = ("save_every", "workers", "overlap", "phases")
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
        tensors[f"weights.{name}"] = parameter
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}.{name}"] = value
    records = [curriculum.to_json() for curriculum in curricula]
    write_state(folder, tensors, {"step": step, "recipe": asdict(recipe), "curricula": records})


def load_state(
    folder: Path,
    recipe: RlRecipe,
    model: SdarModel,
    optimizer: torch.optim.Optimizer,
    curricula: Sequence[Curriculum],
) -> int:
    """Restore everything in place and return the number of steps that are done. Raises RecipeError where there is no
    state, or one of another recipe."""
    tensors, progress = read_state(folder)
    _same(progress["recipe"], json.loads(json.dumps(asdict(recipe))), folder / FILE)
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
