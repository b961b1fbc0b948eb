"""The option ``--pool``."""

from __future__ import annotations

import argparse

from dice_training.judging import LOCAL


def add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool",
        default=LOCAL,
        metavar="PLACE",
        help="where candidates are judged: local (default), ray://HOST:PORT (see dice verify-pool), or ray: the pool"
        " that this machine has joined",
    )
