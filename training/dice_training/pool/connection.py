"""The way to a cluster of Ray: its address, its token, and the one actor there that keeps verdicts."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from dice_training.pool import TOKEN, PoolError
from dice_training.pool.verdicts import Verdicts

NAMESPACE, VERDICTS = "dice", "verdicts"


def connect(place: str) -> tuple[ModuleType, bool]:
    """The module ``ray``, connected to the cluster at ``place``, and whether it was not before. Raises PoolError."""
    if place != "ray" and not place.startswith("ray://"):
        raise PoolError(f"'{place}' is no pool: local, ray, or ray://HOST:PORT")
    if TOKEN.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise PoolError("a pool of several machines needs Ray: pip install 'dice-ls[scale]'") from error
    if ray.is_initialized():
        return ray, False
    try:
        _knock(place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(
                "auto" if place == "ray" else place,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except Exception as error:  # of many kinds, by what is missing
        raise PoolError(
            f"{place}: no pool answers there ({first_line(error)}); start one with: dice verify-pool start"
        ) from error
    return ray, True


def _knock(place: str) -> None:
    """OSError or ValueError where nothing listens; Ray would try for half a minute."""
    if place != "ray":
        address = urlsplit(place)
        socket.create_connection((address.hostname or "", address.port or 0), timeout=10).close()


def shared_verdicts(ray: ModuleType) -> Any:
    """The cluster's one :class:`Verdicts`, on the head node where that can be."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    heads = [node["NodeID"] for node in ray.nodes() if "node:__internal_head__" in node["Resources"]]
    where = NodeAffinitySchedulingStrategy(heads[0], soft=True) if heads else "DEFAULT"
    return (
        ray.remote(Verdicts)
        .options(
            name=VERDICTS,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=where,
        )
        .remote()
    )


def first_line(error: BaseException) -> str:
    """An error as one line: its kind, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
