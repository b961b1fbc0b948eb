"""A recipe: everything that decides a training run, read from one TOML file."""

from __future__ import annotations

import difflib
import sys
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from dice_training.objective import NoiseLevel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class RecipeError(Exception):
    """The recipe cannot be used; the message names the key and what is allowed."""


@dataclass(frozen=True)
class ModelShape:
    """The network when training starts from nothing; ignored when ``init`` names a checkpoint."""

    layers: int = 8
    hidden: int = 512
    intermediate: int = 1536
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 64
    vocab: int = 4096
    context: int = 2048
    tied: bool = True
    """The head is the embedding."""


@dataclass(frozen=True)
class SftRecipe:
    """Paths are relative to the working directory; ``row_length`` counts packed positions."""

    data: str
    output: str
    init: str | None = None
    tokenizer: str | None = None
    """Folder with a ``tokenizer.json`` to start with; by default one is trained on the data."""
    shape: ModelShape = ModelShape()
    block_size: int = 4
    noise: NoiseLevel = "sample"
    row_length: int = 4096
    batch_rows: int = 16
    accumulate: int = 1
    """Batches of ``batch_rows`` rows a step, whatever the number of processes, which share them out evenly."""
    steps: int = 1000
    max_minutes: float | None = None
    """Ends the schedule early when the clock, not the step count, is what is short."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-3
    adam_rate: float = 1.5e-3
    """With Muon: the rate of AdamW for embeddings and norms."""
    warmup: float = 0.03
    decay: float = 0.25
    """The last share of the run, over which the rate falls linearly to zero."""
    weight_decay: float = 0.05
    ema: float = 0.999
    """Decay of the average of the weights, which is what is saved; 0 keeps no average."""
    eval_every: int = 1000
    """Steps between two evaluations on the data's test split; 0 evaluates at the end only."""
    pass_file: str | None = None
    """CuKe rows whose test split gives pass@1 at each evaluation, ``pass_rows`` of them."""
    pass_rows: int = 32
    lora_rank: int = 0
    """Above 0: the weights of ``init`` stay as they are, in bf16, and adapters of this rank are trained."""
    checkpointing: bool = False
    """Layers keep their input only and are run again in the backward pass: less memory for a third more work."""
    shard: bool = False
    """Each process keeps a part of the weights (FSDP2), not all of them: for models that one GPU cannot hold."""
    offload: bool = False
    """With ``shard``: weights and optimizer state stay in the host's memory, which costs most of the speed."""
    save_every: int = 0
    """Steps between two states; 0: ten minutes."""
    seed: int = 0
    quantize: bool = True


T = TypeVar("T")


def load_sft_recipe(path: Path) -> SftRecipe:
    table = read_toml(path)
    shape = from_table(ModelShape, table.pop("shape", {}), f"{path}: [shape]")
    recipe = from_table(SftRecipe, {**table, "shape": shape}, str(path))
    if recipe.offload and not recipe.shard:
        raise RecipeError(f"{path}: 'offload' needs 'shard = true'")
    if recipe.offload and recipe.optimizer == "muon":
        raise RecipeError(f"{path}: 'offload' is for AdamW: Muon's products of matrices need the GPU")
    return recipe


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: no such recipe") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not TOML: {error}") from error


def from_table(kind: type[T], table: dict[str, Any], where: str) -> T:
    """A recipe's dataclass from a TOML table; ``where`` begins the message about a key that does not fit."""
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING and field.name not in table:
            raise RecipeError(f"{where}: '{field.name}' is missing")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise RecipeError(f"{where}: unknown key '{key}'{hint}")
        default = known[key].default
        if isinstance(default, bool) != isinstance(value, bool) and isinstance(default, bool | int | float):
            raise RecipeError(f"{where}: '{key}' must be a {type(default).__name__}")
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise RecipeError(f"{where}: '{key}' must be a number")
    return kind(**table)
