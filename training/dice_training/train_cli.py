"""``dice train``: the command line of the training runs."""

from __future__ import annotations

import argparse
import json
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
    command = commands.add_parser("plan", help="memory, speed and hours of an SFT run, before it is made")
    command.add_argument("recipe", type=Path, help="a TOML recipe of dice train sft")
    command.add_argument("--gpus", type=int, default=1, help="GPUs of one machine (default 1)")
    command.add_argument("--gpu", default="H200", help="H200 (default), H100, A100, L40S or 'RTX 4090'")
    command.add_argument("--json", action="store_true", help="print the plan as JSON")
    args = parser.parse_args(argv)

    if args.command == "plan":
        return _plan(args)

    from dice_engine.model.config import CheckpointError

    from dice_training.data import DataError
    from dice_training.ranks import PeerLost, first_rank, said_first
    from dice_training.recipe import RecipeError

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def ended(words: object, status: int) -> int:
        line = f"dice train: {words}"
        if said_first(line):
            report(line)
        return status

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
        return ended(error, 2)
    except PeerLost as error:
        return ended(error, 1)
    except KeyboardInterrupt:
        return ended("stopped; --resume goes on from the last state saved", 1)
    if first_rank():
        print(folder)
    return 0


def _plan(args: argparse.Namespace) -> int:
    from dice_engine.model.config import CheckpointError

    from dice_training.plan import as_json, as_text, plan
    from dice_training.recipe import RecipeError, load_sft_recipe
    from dice_training.sft import config_of

    try:
        recipe = load_sft_recipe(args.recipe)
        made = plan(config_of(recipe), recipe, args.gpus, args.gpu)
    except (RecipeError, CheckpointError) as error:
        print(f"dice train: {error}", file=sys.stderr)
        return 2
    print(json.dumps(as_json(made), indent=2) if args.json else as_text(made))
    return 0 if made.fits else 1
