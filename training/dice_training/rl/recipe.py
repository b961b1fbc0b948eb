"""A recipe of reinforcement learning: everything that decides a run, read from one TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dice_training.recipe import RecipeError, from_table, read_toml

PhaseKind = Literal["infill", "generate"]


@dataclass(frozen=True)
class Phase:
    """``infill``: rows of CuKe, the core is written between their prefix and suffix. ``generate``: PyTorch tasks
    (``pytorch_code``), everything that makes them fast is written."""

    kind: PhaseKind
    data: str
    steps: int


@dataclass(frozen=True)
class RlRecipe:
    """Paths are relative to the working directory."""

    init: str
    """The checkpoint folder to start from."""
    output: str
    phases: tuple[Phase, ...]
    tasks: int = 64
    """Groups a step."""
    replies: int = 16
    """Replies a group."""
    temperature: float = 1.0
    threshold: float = 0.9
    """Of the dynamic unmasking strategy."""
    max_new_tokens: int = 1024
    learning_rate: float = 1e-6
    updates: int = 1
    """Optimiser steps made of each step's replies."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the KL to the frozen first weights; 0: no reference is kept."""
    shrink: int = 1
    """How many consecutive unmasking steps count as one."""
    speed: float = 0.0
    """Weight of the speed term of the reward: a correct reply gets 1 + speed * log2(speedup), held to [-1, 2]."""
    row_length: int = 8192
    batch_rows: int = 4
    overlap: bool = False
    """Decode the replies of the next step during an update, with the weights before it: off-policy by one."""
    workers: int = 0
    """Verifying processes; 0: one a core."""
    seed: int = 0
    save_every: int = 5
    quantize: bool = True

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def phase_of(self, step: int) -> tuple[int, Phase]:
        """The phase that a step (from 0) belongs to, with its number."""
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                return number, phase
            step -= phase.steps
        raise IndexError("the run has no such step")


def load_rl_recipe(path: Path) -> RlRecipe:
    table = read_toml(path)
    phases = table.pop("phase", [])
    if not isinstance(phases, list) or not phases:
        raise RecipeError(f"{path}: at least one [[phase]] is needed, with kind, data and steps")
    read = tuple(from_table(Phase, phase, f"{path}: phase {n}") for n, phase in enumerate(phases, 1))
    for number, phase in enumerate(read, 1):
        if phase.kind not in ("infill", "generate"):
            raise RecipeError(
                f"{path}: phase {number}: 'kind' is {phase.kind!r}, it can be infill or generate"
            )
    recipe = from_table(RlRecipe, {**table, "phases": read}, str(path))
    for key in ("tasks", "updates", "shrink", "row_length", "batch_rows", "save_every"):
        if getattr(recipe, key) < 1:
            raise RecipeError(f"{path}: '{key}' must be at least 1")
    if recipe.replies < 2:
        raise RecipeError(f"{path}: 'replies' must be at least 2: a reply is compared with the others")
    if recipe.temperature <= 0:
        raise RecipeError(f"{path}: 'temperature' must be above 0: replies that are all alike teach nothing")
    if not 0 <= recipe.speed <= 0.5:
        raise RecipeError(f"{path}: 'speed' must be in [0, 0.5], so that correct replies beat wrong ones")
    return recipe
