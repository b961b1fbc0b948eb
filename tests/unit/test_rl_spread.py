"""Several processes of a run decode and learn as one does; a step may be decoded while the last one is learnt from."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import spawn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import small_tasks
from dice_engine.decode.jobs import Job
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.model.weights import load_model
from dice_engine.verify.verdict import Verdict
from dice_training.judging import Judgement, JudgePool, Options
from dice_training.pool.work import Work
from dice_training.ranks import Ranks, joined
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.policy import Policy
from dice_training.rl.recipe import Phase, RlRecipe
from dice_training.rl.rollout import Rollout, Sampler
from dice_training.rl.tasks import Task, load_tasks
from dice_training.rl.train import Run
from safetensors.torch import load_file, save_file
from test_ranks import free_port

STEPS = 3


class Parity(JudgePool):
    """Judges by a rule that needs no compiler: right is what has an even number of bytes."""

    def run(self, work: Work) -> Future[list[Any]]:
        future: Future[list[Any]] = Future()
        names = ("mismatch", "correct_unmeasured")
        future.set_result([Judgement(Verdict(names[len(core.encode()) % 2 == 0])) for core in work.items])
        return future

    @property
    def workers(self) -> int:
        return 1

    def close(self) -> None:
        pass


class Ended(Sampler):
    """Nonsense seldom ends by itself, and what is cut has no chance to be right."""

    def _rollouts(self, task: Task, job: Job) -> list[Rollout]:
        return [replace(rollout, complete=True) for rollout in super()._rollouts(task, job)]


def run(folder: Path, checkpoint: Path, ranks: Ranks, **changes: Any) -> Policy:
    plan = Phase("infill", str(checkpoint.parent / "rows.jsonl"), STEPS)
    recipe = RlRecipe(
        str(checkpoint), str(folder), (plan,), tasks=2, replies=6, learning_rate=1e-2, row_length=1024,
        batch_rows=1, max_new_tokens=16, quantize=False, **changes,
    )  # fmt: skip
    model = load_model(checkpoint, dtype=torch.float32)
    tokenizer = DiceTokenizer.load(checkpoint)
    found, _ = load_tasks(plan, tokenizer, format="fim", context=512, max_new_tokens=16)
    tasks = {task.id: task for task in found}
    policy = Policy(model, recipe, ranks=ranks)
    sampler = Ended(model, tokenizer, recipe.temperature, recipe.threshold)
    judges = Parity(Options("cpu")) if ranks.first else None
    going = Run(recipe, policy, sampler, ranks)
    going.go([tasks], [Curriculum(list(tasks), 0)], 0, judges, lambda: False, lambda line: None)
    return policy


def journal(folder: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    files = sorted((folder / "rollouts").glob("*.jsonl"))
    kept = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    kept.sort(key=lambda entry: (entry["step"], entry["task"], entry["seed"]))
    return [json.loads(line) for line in lines], [(entry["seed"], entry["tokens"]) for entry in kept]


def member(rank: int, folder: str, checkpoint: str, count: int, port: int, overlap: bool) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with joined() as ranks:
        policy = run(Path(folder), Path(checkpoint), ranks, overlap=overlap)
    weights = {name: parameter.detach() for name, parameter in policy.model.named_parameters()}
    save_file(weights, f"{folder}/{rank}.safetensors")


@pytest.fixture(scope="module")
def start(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with the data beside it."""
    place = tmp_path_factory.mktemp("start")
    (place / "checkpoint").symlink_to(tiny_checkpoint)
    small_tasks.write(place / "rows.jsonl", [small_tasks.kernel_row(name) for name in ("scale", "shift")])
    return place / "checkpoint"


@pytest.mark.parametrize("overlap", [False, True])
def test_two_processes_learn_what_one_does(start: Path, tmp_path: Path, overlap: bool) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()
    spawn(member, (str(together), str(start), 2, free_port(), overlap), nprocs=2)
    first, second = (load_file(together / f"{rank}.safetensors") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)

    policy = run(alone, start, Ranks(), overlap=overlap)
    (ours, our_rollouts), (theirs, their_rollouts) = journal(together), journal(alone)
    assert our_rollouts == their_rollouts and len(our_rollouts) == STEPS * 12
    assert [entry["lag"] for entry in ours] == ([0] + [1] * (STEPS - 1) if overlap else [0] * STEPS)
    for one, other in zip(ours, theirs, strict=True):
        assert one["groups"] > 0 and one["left_out"] == 0 and one["norm"] > 0
        for key in ("reward", "loss", "entropy", "norm", "clipped", "trained_tokens", "verdicts", "lag"):
            assert one[key] == pytest.approx(other[key], rel=1e-4, abs=1e-6), key
    start_weights = dict(load_model(start, dtype=torch.float32).named_parameters())
    # AdamW divides a gradient by its own size, so where one is nearly 0 the order of a sum decides: the whole counts.
    moved = {name: weight.detach() - start_weights[name] for name, weight in policy.model.named_parameters()}
    apart = sum(float((first[name] - start_weights[name] - step).norm() ** 2) for name, step in moved.items())
    assert apart**0.5 < 1e-3 * sum(float(step.norm() ** 2) for step in moved.values()) ** 0.5


def test_off_policy_by_one_is_weighed_against_the_weights_that_drew(start: Path, tmp_path: Path) -> None:
    """The first update is on-policy either way; the second sees other replies, and ratios that are not 1."""
    on, off = tmp_path / "on", tmp_path / "off"
    on.mkdir()
    off.mkdir()
    run(on, start, Ranks())
    run(off, start, Ranks(), overlap=True)
    (usual, _), (overlapped, _) = journal(on), journal(off)
    assert usual[0]["loss"] == overlapped[0]["loss"] and overlapped[1]["lag"] == 1
    assert all(entry["clipped"] == 0 for entry in usual) and overlapped[1]["clipped"] > 0
