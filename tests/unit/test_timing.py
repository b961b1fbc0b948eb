"""The judge's stopwatch without a GPU: real programs in this process, a clock that the test sets."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dice_engine.source.plans import kernel_plan
from dice_engine.verify import compare, timing
from dice_engine.verify.clock import Timing
from dice_engine.verify.compare import Check
from dice_engine.verify.judge.kernel_cases import case_message, plan_message
from dice_engine.verify.runner import Runner
from dice_engine.verify.worker import Failed
from torch.utils import cpp_extension

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import HONEST, REFERENCE, module

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """Programs change torch for their process; here the process goes on with other tests."""
    places = (torch.cuda, cpp_extension)
    before = [dict(vars(place)) for place in places]
    yield
    for place, names in zip(places, before, strict=True):
        vars(place).update(names)


class Clock:
    """Calls as often as asked and says that each took ``ms``."""

    def __init__(self, ms: float, escaped: bool = False):
        self.ms = ms
        self.escaped = escaped

    def warm_up(self, call: Any, restore: Any) -> int:
        restore()
        call()
        return 1

    def measure(self, call: Any, restore: Any, n: int) -> Timing:
        for _ in range(n):
            restore()
            call()
        return Timing([self.ms * (1 + 0.001 * i) for i in range(n)], [self.ms * 2] * n, self.escaped)


class Desk:
    """A runner in this process, asked as a worker is."""

    def __init__(self, folder: Path, clock: Clock):
        folder.mkdir()
        self.runner = Runner(torch.device("cpu"), folder)
        self.runner._clock = clock
        self.runner.bandwidth = lambda: 1e12  # type: ignore[method-assign]

    def ask(self, request: str, timeout: float, **fields: Any) -> Any:
        reply = self.runner.answer({"op": request, **fields})
        if "error" in reply:
            raise Failed("crash", reply["error"]["message"])
        return reply["value"]


SETS = [[torch.randn(19, 100, generator=torch.Generator().manual_seed(seed))] for seed in range(2)]


def desk(folder: Path, text: str, name: str, ms: float, escaped: bool = False) -> Desk:
    made = Desk(folder, Clock(ms, escaped))
    made.ask(
        "load_module", 1, text=text, role=name, class_name=name, tripwire=None, headers=None, clock=False
    )
    made.ask("construct", 1, init_inputs=[2.0], seed=0)
    made.ask("prepare_module_timing", 1, input_sets=SETS, compiled=False)
    return made


def check(which: int, outputs: Any) -> Check:
    wanted = torch.softmax(SETS[which][0] * 2.0, dim=1)
    return compare.compare(wanted, outputs, [compare.bounds(torch.float32)])


def race(tmp_path: Path, text: str, ms: float, escaped: bool = False) -> timing.Measured:
    reference: Any = desk(tmp_path / "reference", REFERENCE, "Model", 1.0)
    candidate: Any = desk(tmp_path / "candidate", text, "ModelNew", ms, escaped)
    return timing.race(reference, candidate, 2, check, 1, timing.Traffic(7600, 15200), 10.0)


def test_the_ratio_is_reference_over_candidate(tmp_path: Path) -> None:
    found = race(tmp_path, HONEST["plain"], 0.25)
    assert found.interval.low > 3.9
    assert found.interval.ratio == pytest.approx(4.0, rel=0.02)
    assert found.reference_ms / found.candidate_ms == pytest.approx(4.0, rel=0.02)


def test_work_that_escapes_the_stream_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed) as caught:
        race(tmp_path, HONEST["plain"], 0.25, escaped=True)
    assert (caught.value.verdict, caught.value.rule) == ("deceptive", "stream_escape")


@pytest.mark.parametrize(
    "late",
    [
        "return self.kept[float(x.sum())].clone()",  # kept answers, no launch
        "return torch.empty_like(x)",  # what memory still holds
        "return ext.run(x, 0.5)",  # wrong once it counts
    ],
)
def test_honest_only_while_watched(tmp_path: Path, late: str) -> None:
    body = f"self.calls += 1\nif self.calls > 5:\n    {late}\ny = ext.run(x, self.factor)\n"
    text = module(body + "self.kept[float(x.sum())] = y\nreturn y", init="self.calls = 0\nself.kept = {}")
    with pytest.raises(Failed) as caught:
        race(tmp_path, text, 0.25)
    assert (caught.value.verdict, caught.value.rule) == ("deceptive", "caching")


def test_a_time_below_the_roofline_is_no_speedup(tmp_path: Path) -> None:
    reference: Any = desk(tmp_path / "reference", REFERENCE, "Model", 1.0)
    candidate: Any = desk(tmp_path / "candidate", HONEST["plain"], "ModelNew", 1e-4)
    with pytest.raises(Failed) as caught:
        timing.race(reference, candidate, 2, check, 1, timing.Traffic(1 << 30, 1 << 31), 10.0)
    assert caught.value.verdict == "infra_error"


def test_kernels_start_from_the_same_contents_each_time(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "cases" / "running_mean.cu").read_text()
    plan = kernel_plan(text, "running_mean")
    case = case_message(plan, 0, 0, 0, "given")
    made = Desk(tmp_path / "kernel", Clock(1.0))
    made.ask("load_kernel", 1, text=text, plan=plan_message(plan), clock=False)
    once = made.ask("run_kernel", 1, case=case, options={})["outputs"]["mean"]
    made.ask("prepare_kernel_timing", 1, case=case)
    timed = made.ask("time", 1, which=0, calls=5, outputs=True, warm=True)
    assert torch.equal(timed["outputs"]["mean"], once)
    assert timed["launches"] == 5


def test_every_turn_lies_elsewhere(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "cases" / "running_mean.cu").read_text()
    plan = kernel_plan(text, "running_mean")
    case = case_message(plan, 0, len(plan.sizes) - 1, 0, "given")
    made = Desk(tmp_path / "kernel", Clock(1.0))
    made.ask("load_kernel", 1, text=text, plan=plan_message(plan), clock=False)
    made.ask("prepare_kernel_timing", 1, case=case)
    program, moved = made.runner._kernel, []
    assert program is not None
    program._placement.move = lambda: moved.append(len(program._buffers))  # type: ignore[method-assign]
    first = made.ask("time", 1, which=0, calls=3, outputs=True, warm=False)["outputs"]
    second = made.ask("time", 1, which=0, calls=3, outputs=True, warm=False)["outputs"]
    assert moved == [0, 0], "the last turn's buffers are gone when memory is moved"
    assert all(torch.equal(first[name], second[name]) for name in first)
