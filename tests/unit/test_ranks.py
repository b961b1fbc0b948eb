"""Several processes share the batches of a step, and train as one does that has them all."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.multiprocessing.spawn import start_processes

sys.path.insert(0, str(Path(__file__).parent))
from dice_training.feed import Place
from dice_training.ranks import Ranks, joined
from dice_training.trainer import Trainer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_sft import copies, recipe, tiny_model

STEPS = 6


def run(folder: Path, ranks: Ranks) -> Trainer:
    plan = recipe(folder, steps=STEPS, optimizer="muon", accumulate=2)
    trainer = Trainer(plan, tiny_model(), lambda line: None, folder, ranks)
    trainer.run(copies(200), copies(8))
    return trainer


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    """What ``torchrun`` sets."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def processes(function: Callable[..., None], folder: Path, count: int) -> None:
    """``function(rank, folder, count, port)`` in ``count`` processes. They are forks of one that has imported all there
    is to import, which takes longer than the rest."""
    multiprocessing.set_forkserver_preload(["dice_training.trainer", "peft", "torch.utils.tensorboard"])
    arguments = (str(folder), count, free_port())
    start_processes(function, arguments, nprocs=count, start_method="forkserver")


def member(rank: int, folder: str, count: int, port: int) -> None:
    os.environ |= environment(rank, count, port)
    torch.set_num_threads(1)
    with joined() as ranks:
        assert (ranks.rank, ranks.count) == (rank, count)
        # A clock that runs ahead must not let one process take another number of steps.
        assert ranks.agreed(rank + 0.25, 7.0) == (0.25, 7.0)
        trainer = run(Path(folder), ranks)
    save_file({name: p.detach() for name, p in trainer.weights.items()}, f"{folder}/{rank}.safetensors")


def free_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    together = tmp_path / "together"
    together.mkdir()
    processes(member, together, 2)
    first, second = (load_file(together / f"{rank}.safetensors") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)

    alone = recipe(tmp_path / "alone", steps=STEPS, optimizer="muon", accumulate=2)
    trainer = Trainer(alone, tiny_model(), lambda line: None, tmp_path / "alone")
    trainer.run(copies(200), copies(8))
    state = json.loads(safe_open(together / "state.safetensors", framework="pt").metadata()["progress"])
    assert Place(**state["place"]) == trainer.progress.place == Place(0, 2 * STEPS)
    for name, weight in trainer.weights.items():
        torch.testing.assert_close(first[name], weight.detach(), rtol=1e-5, atol=1e-6)
    losses = [
        [json.loads(line)["loss"] for line in (folder / "log.jsonl").open() if '"loss"' in line]
        for folder in (together, tmp_path / "alone")
    ]
    assert losses[0]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-6)
