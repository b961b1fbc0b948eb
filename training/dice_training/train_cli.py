"""``dice train``: the command line of the training runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dice train", description="Train a checkpoint from a recipe.")
    commands = parser.add_subparsers(dest="command", required=True)
    sft = commands.add_parser("sft", help="supervised fine-tuning by the block-diffusion objective")
    sft.add_argument("recipe", type=Path, help="a TOML recipe, see training/recipes")
    args = parser.parse_args(argv)

    from dice_engine.model.config import CheckpointError

    from dice_training.data import DataError
    from dice_training.recipe import RecipeError, load_sft_recipe
    from dice_training.sft import train

    try:
        folder = train(load_sft_recipe(args.recipe), lambda line: print(line, file=sys.stderr, flush=True))
    except (RecipeError, DataError, CheckpointError) as error:
        print(f"dice train: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dice train: stopped, nothing was saved", file=sys.stderr)
        return 1
    print(folder)
    return 0
