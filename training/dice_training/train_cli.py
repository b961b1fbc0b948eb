"""``dice train``: the command line of the training runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dice_training.pool import PoolError
from dice_training.pool.cli import add_pool


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dice train", description="Train a checkpoint from a recipe.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (
        ("sft", "supervised fine-tuning by the block-diffusion objective"),
        ("rl", "reinforcement learning from the verifier's verdicts (BiC-RL)"),
    ):
        command = commands.add_parser(name, help=words)
        command.add_argument("recipe", type=Path, help="a TOML recipe, see training/recipes")
        command.add_argument(
            "--resume", action="store_true", help="go on from the state in the output folder"
        )
        command.add_argument(
            "--stop-after",
            type=float,
            metavar="MINUTES",
            help="end this command then, its state saved; the schedule stays that of the whole run",
        )
        if name == "rl":
            add_pool(command)
    args = parser.parse_args(argv)

    from dice_engine.model.config import CheckpointError

    from dice_training.data import DataError
    from dice_training.recipe import RecipeError

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        if args.command == "sft":
            from dice_training.recipe import load_sft_recipe
            from dice_training.sft import train

            recipe = load_sft_recipe(args.recipe)
            folder = train(recipe, report, resume=args.resume, stop_after=args.stop_after)
        else:
            from dice_training.rl.recipe import load_rl_recipe
            from dice_training.rl.train import train as train_rl

            rl_recipe = load_rl_recipe(args.recipe)
            folder = train_rl(
                rl_recipe, report, resume=args.resume, stop_after=args.stop_after, pool=args.pool
            )
    except (RecipeError, DataError, CheckpointError, PoolError) as error:
        print(f"dice train: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dice train: stopped; --resume goes on from the last state saved", file=sys.stderr)
        return 1
    print(folder)
    return 0
