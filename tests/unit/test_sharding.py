"""Weights cut over 1, 2 and 4 processes train as whole ones in one process do, and their states fit any number."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dice_engine.model.network import SdarModel
from dice_engine.model.weights import load_model
from dice_training.feed import Inputs, noised
from dice_training.forward import _head, _layer
from dice_training.log import Log
from dice_training.lora import add_adapters
from dice_training.packing import pack
from dice_training.ranks import ALONE, Ranks, joined
from dice_training.recipe import RecipeError, SftRecipe, load_sft_recipe
from dice_training.trainer import Trainer
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).parent))
from test_ranks import environment, processes
from test_sft import copies, recipe, stop_at, tiny_model

STEPS = 20
CASES: dict[str, dict[str, object]] = {
    "adamw": {"checkpointing": True},
    "muon": {"optimizer": "muon", "ema": 0.0},
    "lora": {"lora_rank": 3},
}
BY = {4: ["adamw", "muon"], 2: ["adamw", "muon", "lora"], 1: ["adamw"]}
EVERY = [(count, case) for count, cases in BY.items() for case in cases]
CUT = [(2, "adamw"), (2, "muon"), (1, "adamw")]
"""What goes on from the state of a run of four processes that stopped half-way."""
NEAR = {"adamw": 1e-5, "muon": 5e-3, "lora": 1e-5}
"""Muon makes its matrices orthogonal in bf16, whose rounding depends on how many there are in a product."""


def network(plan: SftRecipe, ranks: Ranks) -> SdarModel:
    """Tied for AdamW, untied for Muon; in all processes but the first without weights."""
    model = tiny_model()
    if plan.optimizer == "muon":
        model.config = replace(model.config, tie_word_embeddings=False)
        model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach() * 0.5)
    if plan.shard and not ranks.first:
        model.to("meta")
        model.tie_weights()
    torch.manual_seed(0)
    if plan.lora_rank:
        add_adapters(model, plan.lora_rank)
    return model


def run(
    case: str, folder: Path, ranks: Ranks = ALONE, shard: bool = True, stop: int = 0, resume: bool = False
) -> list[float]:
    """The losses of all steps that were taken; every file is in ``folder``."""
    changes = {"learning_rate": 1e-3, "accumulate": 4, "batch_rows": 2, "quantize": False, **CASES[case]}
    plan = recipe(folder, steps=STEPS, shard=shard, **changes)
    trainer = Trainer(plan, network(plan, ranks), lambda line: None, folder, ranks, torch.device("cpu"))
    if resume:
        trainer.resume()
    losses: list[float] = []
    original = trainer.step

    def step(parts: list[Inputs], rate: float) -> torch.Tensor:
        loss = original(parts, rate)
        losses.append(loss.item())
        return loss

    trainer.step = step  # type: ignore[method-assign]
    if stop:
        stop_at(trainer, stop)
    trainer.run(copies(50), copies(40))
    return losses


def member(rank: int, folder: str, count: int, port: int) -> None:
    os.environ |= environment(rank, count, port)
    torch.set_num_threads(1)
    Log.close = lambda self: None  # type: ignore[method-assign]  # drawing takes longer than training here
    together(Path(folder), count)


def together(folder: Path, count: int) -> None:
    with joined(group=True) as ranks:
        told = {case: run(case, folder / f"{count}-{case}", ranks) for case in BY[count]}
        for case in ("adamw", "muon"):
            cut = folder / f"{count}-{case}-cut"
            if count == 4:
                run(case, cut, ranks, stop=10)
            elif (count, case) in CUT:
                told[f"{case}-cut"] = run(case, cut, ranks, resume=True)
    if ranks.first:
        (folder / f"{count}.json").write_text(json.dumps(told))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case by 4, 2 and 1 sharded processes and by one that is not sharded."""
    folder = tmp_path_factory.mktemp("runs")
    processes(member, folder, 4)
    for count, case in CUT:
        shutil.copytree(folder / f"4-{case}-cut", folder / f"{count}-{case}-cut")
    processes(member, folder, 2)
    together(folder, 1)
    plain = {case: run(case, folder / f"plain-{case}", shard=False) for case in CASES}
    (folder / "plain.json").write_text(json.dumps(plain))
    return folder


def told(folder: Path, name: object) -> dict[str, list[float]]:
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.parametrize(("count", "case"), EVERY)
def test_the_loss_curve_is_that_of_one_process(runs: Path, case: str, count: int) -> None:
    plain, ours = told(runs, "plain")[case], told(runs, count)[case]
    assert len(plain) == STEPS and plain[-1] < plain[0]
    assert ours == pytest.approx(plain, abs=NEAR[case])


@pytest.mark.parametrize(("count", "case"), CUT)
def test_what_four_processes_saved_fewer_go_on_with(runs: Path, case: str, count: int) -> None:
    plain, ours = told(runs, "plain")[case], told(runs, count)[f"{case}-cut"]
    assert len(ours) == STEPS - 10
    assert ours == pytest.approx(plain[10:], abs=NEAR[case])


@pytest.mark.parametrize(("count", "case"), EVERY)
def test_the_checkpoint_is_a_plain_one(runs: Path, case: str, count: int) -> None:
    """The average, where there is one, with adapters added, in one file that the engine loads; scored alike too."""
    plain, ours = (load_model(runs / f"{name}-{case}", dtype=torch.float32) for name in ("plain", count))
    assert ours.config == plain.config
    for (name, a), b in zip(plain.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=5e-3 if case == "muon" else 1e-4, msg=name)
    entries = [
        [json.loads(line) for line in (runs / f"{name}-{case}" / "log.jsonl").open() if "held_out" in line]
        for name in ("plain", count)
    ]
    assert entries[0][-1]["held_out"] == pytest.approx(entries[1][-1]["held_out"], abs=NEAR[case])


def test_one_whole_state_is_kept_and_nothing_in_it_is_a_pickle(runs: Path) -> None:
    (state,) = (runs / "2-adamw" / "state").iterdir()
    assert state.name == "step-00000020"
    assert {path.suffix for path in state.iterdir()} == {".safetensors", ".json"}
    assert len(list(state.glob("*.safetensors"))) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: shutil.rmtree(state), "nothing to resume"),
        (lambda state: (state / "progress.json").unlink(), "nothing to resume"),
        (lambda state: (state / "progress.json").write_text("["), "not a state of this run"),
        (lambda state: next(state.glob("*.safetensors")).write_bytes(b"no"), "not a state of this run"),
        (lambda state: next(state.glob("*.safetensors")).unlink(), "not a state of this run"),
    ],
)
def test_a_state_that_cannot_be_used_is_one_clear_error(
    runs: Path, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    shutil.copytree(runs / "2-adamw" / "state", tmp_path / "state")
    change(tmp_path / "state" / "step-00000020")
    with joined(group=True) as ranks, pytest.raises(RecipeError, match=message) as caught:
        run("adamw", tmp_path, ranks, resume=True)
    assert "\n" not in str(caught.value)


def test_the_state_of_another_model_is_refused(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "2-adamw" / "state", tmp_path / "state")
    with joined(group=True) as ranks, pytest.raises(RecipeError, match="not a state of this run"):
        run("muon", tmp_path, ranks, resume=True)


def test_one_compiled_layer_serves_all_that_are_sharded(tmp_path: Path) -> None:
    """Compiled as on a GPU, but by the tracer alone: one graph of a layer and one of the head, whole and run again."""
    torch._dynamo.reset()
    counters.clear()
    plan = recipe(tmp_path, shard=True, checkpointing=True)
    with joined(group=True) as ranks:
        trainer = Trainer(plan, tiny_model(), print, tmp_path, ranks, torch.device("cpu"))
        part = noised(pack(copies(12), 64, 4), trainer.noise, (0,))
        plain = trainer.step([part], 0.0)
        forward = trainer.forward
        forward.layers.layer = torch.compile(_layer, backend="aot_eager", fullgraph=True)
        forward.head = torch.compile(_head, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            assert trainer.step([part], 0.0).item() == pytest.approx(plain.item(), abs=1e-5)
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("changes", [{}, {"checkpointing": True, "offload": True}, {"lora_rank": 4}])
def test_sharded_steps_on_a_gpu_are_those_of_whole_weights(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """In bf16, compiled; the state is saved and read as well."""
    cuda = torch.device("cuda", 0)
    losses: dict[bool, list[float]] = {}
    for shard in (False, True):
        plan = recipe(
            tmp_path, row_length=1024, batch_rows=2, steps=5, shard=shard, quantize=False, **changes
        )
        plan = replace(plan, offload=plan.offload and shard)
        model = tiny_model(layers=4).to(cuda)
        torch.manual_seed(0)
        if plan.lora_rank:
            model.bfloat16()
            add_adapters(model, plan.lora_rank)
        with joined(group=True) as ranks:
            trainer = Trainer(plan, model, print, tmp_path, ranks, cuda)
            parts = [noised(pack(copies(100), 1024, 4), trainer.noise, (n,)) for n in range(4)]
            losses[shard] = [trainer.step([part], 0.2).item() for part in parts]
            trainer._save()
            trainer.resume()
            losses[shard].append(trainer.step([parts[0]], 0.2).item())
            trainer.save_average()
    assert losses[True] == pytest.approx(losses[False], rel=0.01)
    assert losses[True][-1] < losses[True][0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("offload = true", "'offload' needs 'shard = true'"),
        ('offload = true\nshard = true\noptimizer = "muon"', "'offload' is for AdamW"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f'data = "d"\noutput = "o"\n{keys}\n')
    with pytest.raises(RecipeError, match=message):
        load_sft_recipe(path)


def test_a_step_that_cannot_be_shared_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"accumulate is 3: 2 processes cannot .* multiple of 2"):
        Trainer(recipe(tmp_path, accumulate=3), tiny_model(), print, tmp_path, Ranks(0, 2))
