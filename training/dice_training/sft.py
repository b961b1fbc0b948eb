"""Supervised fine-tuning by the block-diffusion objective: ``dice train sft RECIPE.toml``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch
from dice_engine.model.config import SdarConfig
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import SPECIALS
from dice_engine.model.weights import load_model

from dice_training.data import build_dataset, read_rows, texts
from dice_training.lora import add_adapters
from dice_training.packing import Sample
from dice_training.ranks import PeerLost, Ranks, first_rank, joined
from dice_training.recipe import RecipeError, SftRecipe
from dice_training.sharded_state import saved_step
from dice_training.tokenizer import save_tokenizer, train_tokenizer, write_whole
from dice_training.trainer import Trainer

Report = Callable[[str], None]
TOKENIZER_ROWS = 20_000
HELD_OUT_ROWS = 256


def train(
    recipe: SftRecipe, report: Report, *, resume: bool = False, stop_after: float | None = None
) -> Path:
    """Run ``recipe`` and return the checkpoint folder. ``report`` gets one line of progress at a time.

    ``stop_after`` ends the command after so many minutes of training; ``resume`` goes on from the state in the output
    folder. The schedule is that of the whole run, whatever the number of commands. Ctrl-C and SIGTERM save
    the state and the checkpoint, then raise :class:`KeyboardInterrupt`. Under ``torchrun`` the processes share the
    batches of each step, and the first one reports.
    """
    torch.manual_seed(recipe.seed)
    torch.set_float32_matmul_precision("high")
    report = report if first_rank() else _silent
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    output = Path(recipe.output)
    every = list(read_rows(Path(recipe.data)))
    rows = [row for row in every if row["split"] == "train"]
    held_out = [row for row in every if row["split"] == "test"][:HELD_OUT_ROWS]
    if not rows:
        raise RecipeError(f"{recipe.data}: no rows with split 'train'")
    config = config_of(recipe)
    tokenizer_folder = _tokenizer(recipe, rows, output, resume)
    workers = min(16, os.cpu_count() or 1) if len(rows) > 5000 else 1

    def dataset(part: list[dict[str, object]]) -> list[Sample]:
        built = build_dataset(
            part,
            tokenizer_folder,
            block_size=recipe.block_size,
            context=config.max_position_embeddings,
            row_length=recipe.row_length,
            format=config.format,
            workers=workers,
        )
        report(f"{len(built.samples)} samples, {built.dropped} too long and left out")
        return built.samples

    samples, test_samples = dataset(rows), dataset(held_out)
    if not samples:
        raise RecipeError(f"{recipe.data}: all rows are too long for the context or for row_length")
    # The processes join when the data is there: it is made by forks, which nothing of a GPU or a network survives.
    with _joined(recipe, output) as ranks:
        trainer = Trainer(recipe, _model(recipe, config, device, ranks), report, output, ranks, device)
        if resume:
            trainer.resume()
        trainer.run(samples, test_samples, stop_after)
        if ranks.first:
            (output / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2))
            report(f"saved {output}")
    if trainer.stopping:
        raise KeyboardInterrupt
    return output


@contextmanager
def _joined(recipe: SftRecipe, output: Path) -> Iterator[Ranks]:
    """:func:`joined`, and the state to go on from is named where another process is lost."""
    try:
        with joined(group=recipe.shard) as ranks:
            yield ranks
    except PeerLost as error:
        step = saved_step(output) if recipe.shard else None
        place = "the last state saved" if step is None else f"the state at step {step}"
        raise PeerLost(f"{error}; the run stops, and --resume goes on from {place}") from error


def _silent(line: str) -> None:
    pass


def config_of(recipe: SftRecipe) -> SdarConfig:
    if recipe.init is not None:
        return replace(SdarConfig.load(Path(recipe.init)), block_size=recipe.block_size)
    shape = recipe.shape
    return SdarConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        tie_word_embeddings=shape.tied,
        block_size=recipe.block_size,
        mask_token_id=SPECIALS.index("<|mask|>"),
        eos_token_ids=(SPECIALS.index("<|endoftext|>"),),
        pad_token_id=SPECIALS.index("<|pad|>"),
        rope_theta=1e4,
        dice={"format": "fim"},
    )


def _tokenizer(recipe: SftRecipe, rows: list[dict[str, object]], output: Path, resume: bool) -> Path:
    """The folder that holds the run's tokenizer, which is written to ``output`` as well."""
    if recipe.init is not None:
        save_tokenizer_copy(Path(recipe.init), output)
        return Path(recipe.init)
    if resume and (output / "tokenizer.json").is_file():
        pass  # the run has its tokenizer; another one would give its weights other meanings
    elif recipe.tokenizer is not None:
        save_tokenizer_copy(Path(recipe.tokenizer), output)
    else:
        save_tokenizer(train_tokenizer(texts(rows[:TOKENIZER_ROWS]), recipe.shape.vocab), output)
    return output


def _model(recipe: SftRecipe, config: SdarConfig, device: torch.device, ranks: Ranks) -> SdarModel:
    """The model to train, on ``device``. To be sharded: published weights on the CPU, and those of the first process
    alone count, so that the others' models are empty."""
    if recipe.shard and not ranks.first:
        device = torch.device("meta")
    elif recipe.shard and recipe.init is not None:
        device = torch.device("cpu")
    if recipe.init is not None:
        dtype = torch.bfloat16 if recipe.lora_rank else torch.float32
        model = load_model(Path(recipe.init), device, dtype).requires_grad_(True).train()
        model.config = replace(model.config, block_size=recipe.block_size)
    else:
        with device:
            model = SdarModel(config)
        if device.type != "meta":
            model.reset_parameters(torch.Generator(device).manual_seed(recipe.seed))
        if recipe.lora_rank:
            model.bfloat16()
    if recipe.lora_rank:
        add_adapters(model, recipe.lora_rank)
    return model


def save_tokenizer_copy(source: Path, output: Path) -> None:
    try:
        content = (source / "tokenizer.json").read_bytes()
    except OSError as error:
        raise RecipeError(f"{source}: no readable tokenizer.json there ({error.strerror})") from error
    output.mkdir(parents=True, exist_ok=True)
    write_whole(output / "tokenizer.json", content)
