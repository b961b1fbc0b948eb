"""What a run needs to go on exactly where it was: weights and optimiser in float32, curricula, the step."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from dice_engine.model.network import SdarModel
from safetensors.torch import load_file, save_file

from dice_training.recipe import RecipeError
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.recipe import RlRecipe

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def save_state(
    folder: Path,
    recipe: RlRecipe,
    step: int,
    model: SdarModel,
    optimizer: torch.optim.Optimizer,
    curricula: list[Curriculum],
) -> None:
    """Write ``folder`` anew; ``step`` steps are done. The old state stays until the new one is whole."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    named = list(model.named_parameters())
    save_file({name: p.detach().cpu().contiguous() for name, p in named}, part / "weights.safetensors")
    moments = {
        f"{name}.{key}": optimizer.state[parameter][key].detach().cpu().contiguous()
        for name, parameter in named
        if parameter in optimizer.state
        for key in _MOMENTS
    }
    save_file(moments, part / "optimizer.safetensors")
    data = {
        "step": step,
        "recipe": asdict(recipe),
        "curricula": [curriculum.to_json() for curriculum in curricula],
    }
    (part / "state.json").write_text(json.dumps(data), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)


def load_state(
    folder: Path,
    recipe: RlRecipe,
    model: SdarModel,
    optimizer: torch.optim.Optimizer,
    curricula: list[Curriculum],
) -> int:
    """Restore everything in place and return the number of steps that are done; 0 where there is no state.

    The recipe may name more steps than the one the state was made with; nothing else may differ.
    """
    part = folder.with_name(folder.name + ".part")
    if not folder.is_dir():
        if not (part / "state.json").is_file():
            return 0
        part.replace(folder)  # stopped between the removal of the old state and this
    data: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    _same(data["recipe"], json.loads(json.dumps(asdict(recipe))), folder)
    weights = load_file(folder / "weights.safetensors")
    moments = load_file(folder / "optimizer.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
            if f"{name}.step" in moments:
                optimizer.state[parameter] = {
                    key: moments[f"{name}.{key}"].to(parameter.device) for key in _MOMENTS
                }
    for curriculum, records in zip(curricula, data["curricula"], strict=True):
        curriculum.restore(records)
    return int(data["step"])


def _same(old: dict[str, Any], new: dict[str, Any], folder: Path) -> None:
    for table in (old, new):
        for phase in table["phases"]:
            phase.pop("steps")
        table.pop("save_every")
        table.pop("workers")
    different = [key for key in new if old.get(key) != new[key]]
    if different:
        raise RecipeError(
            f"{folder} is the state of a run whose '{different[0]}' was {old.get(different[0])!r}: "
            "remove the folder to start anew, or choose another output"
        )
