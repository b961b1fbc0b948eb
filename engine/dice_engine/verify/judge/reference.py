"""The reference module as the judge sees it: cases with inputs, expected outputs and the bounds they are held to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dice_engine.source.plan import Tolerance
from dice_engine.verify import compare, inputs
from dice_engine.verify.compare import Bounds
from dice_engine.verify.inputs import FillKind
from dice_engine.verify.judge import weights
from dice_engine.verify.judge.weights import TRAINED
from dice_engine.verify.program import RunOptions
from dice_engine.verify.protocol import DTYPES
from dice_engine.verify.worker import Failed, Worker

WEIGHT_SEED = 20_250_131
_DOUBLE_SECONDS = 4.0
"""A reference whose pass takes longer than this is not run in float64 as well."""

_ILL_CONDITIONED = 1000
"""Near-constant inputs are left out where the output moves by more steps than this when they move by one: there the
values cancel, and what is left is rounding."""


@dataclass
class Case:
    """One set of inputs with what the reference makes of it."""

    name: str
    seed: int
    inputs: list[Any]
    expected: Any
    limits: list[Bounds]
    strides: list[list[int]] = field(default_factory=list)
    """The reference's own, [] where an output is contiguous."""


class Reference:
    """A loaded reference module. Its cases are computed once and serve every candidate of the session."""

    def __init__(
        self,
        worker: Worker,
        text: str,
        class_name: str,
        timeout: float,
        build_timeout: float,
        headers: str | None = None,
        clock: bool = False,
        tolerance: Tolerance | None = None,
    ):
        self.worker = worker
        self.timeout = timeout
        self.build_timeout = build_timeout
        self.class_name = class_name
        self.tolerance = tolerance
        self._cases: dict[str, Case | None] = {}
        self._timing_for: bool | None = None
        self.even: dict[str, torch.Tensor] = {}
        """The weights that are even when they are new; known once ``trained`` was asked for."""
        self._trained_state: dict[str, torch.Tensor] | None = None
        build = worker.ask(
            "load_module",
            build_timeout,
            text=text,
            role="reference",
            class_name=class_name,
            tripwire=None,
            headers=headers,
            clock=clock,
        )
        self.has_kernels = bool(build["backend"])
        self.init_inputs: list[Any] = worker.ask("init_inputs", timeout, seed=WEIGHT_SEED)
        constructed = worker.ask("construct", build_timeout, init_inputs=self.init_inputs, seed=WEIGHT_SEED)
        self.state: list[tuple[str, str, list[int], str]] = [tuple(entry) for entry in constructed["state"]]
        self.state_bytes = sum(
            math.prod(shape) * DTYPES[dtype].itemsize for _, dtype, shape, _ in self.state if dtype in DTYPES
        )
        """Bytes of weights and buffers."""
        self.ops: dict[str, int] = {}
        self.mutated: list[str] = []
        self.seconds = 0.0
        self.longest = 0.0
        """Seconds of its longest run so far, with everything around it."""
        self.host_reads = 0
        self.overwrites = False
        self.shared_memory: list[str] = []
        self._strides: list[list[int]] = []
        self._accumulation = 1
        self._dtype = torch.float32
        self._first()

    def case(self, name: str) -> Case | None:
        """The case of that name: ``seed0``, ``seed1``, a fill or ``trained``; None where it is not finite."""
        if name not in self._cases:
            if name == TRAINED:
                self._cases[name] = self._trained()
            elif name in (*inputs.FILLS, "moved"):
                self._cases[name] = self._fill(name)  # type: ignore[arg-type]
            else:
                self._cases[name] = self._seeded(int(name[4:]))
        return self._cases[name]

    @property
    def trained(self) -> dict[str, torch.Tensor]:
        """Other values for the weights that are even when they are new (see ``weights.trained``)."""
        if self._trained_state is None:
            self.even = self.worker.ask("even_state", self.timeout)
            self._trained_state = weights.trained(self.even)
        return self._trained_state

    def results(self, case: Case, pieces: bool = False) -> list[torch.Tensor]:
        """What its operators give on the way, of the shape of an output; with ``pieces`` of any shape."""
        options = vars(RunOptions(keep_results=True))
        result = self.worker.run_module(
            self.timeout, self.build_timeout, inputs=case.inputs, options=options, seed=case.seed
        )
        return result["results"] + (result["pieces"] if pieces else [])

    def timing_cases(self) -> list[Case]:
        """The cases to time on: the given inputs under two seeds."""
        return [case for name in ("seed0", "seed1") if (case := self.case(name)) is not None]

    def prepare_timing(self, timeout: float, compiled: bool) -> None:
        """Get the runner ready for the clock; ``compiled`` times torch.compile of the module."""
        if self._timing_for != compiled:
            sets = [case.inputs for case in self.timing_cases()]
            self.worker.ask("prepare_module_timing", timeout, input_sets=sets, compiled=compiled)
            self._timing_for = compiled

    def _first(self) -> None:
        """The first case, and whether this reference can be verified against at all."""
        given = self.worker.ask("inputs", self.timeout, seed=0)
        first = self._run(given, seed=0, poison=0)
        self.ops, self.mutated, self.seconds = first["ops"], first["mutated"], first["seconds"]
        self.shared_memory = first["shared_memory"]
        self._strides, self.host_reads = first["strides"], first["host_reads"]
        if first["damage"]:
            raise Failed("no_plan", f"the reference itself {first['damage']}")
        if first["odd_outputs"]:
            raise Failed("no_plan", f"the reference's {first['odd_outputs'][0]}")
        if not list(compare.tensors(first["outputs"])):
            raise Failed("no_plan", "the reference returns no tensor to compare")
        total_in = sum(tensor.numel() for _, tensor in compare.tensors(given))
        total_out = sum(tensor.numel() for _, tensor in compare.tensors(first["outputs"]))
        longest = max((max(t.shape, default=1) for _, t in compare.tensors(given)), default=1)
        self._accumulation = max(1, longest, total_in // max(1, total_out))
        self._dtype = compare.lowest_dtype(given)
        again = self._run(given, seed=0, poison=1)
        case = self._case("seed0", 0, given, first["outputs"], again["outputs"])
        if case is None:
            raise Failed("no_plan", "the reference is not reproducible: two runs on the same inputs differ")
        self._cases["seed0"] = case
        self._refuse_trivial()

    def _refuse_trivial(self) -> None:
        """Refuse to verify where zeros, ones or an input would pass for the answer."""
        cases = [
            case for name in ("seed0", "seed1", "near_constant") if (case := self.case(name)) is not None
        ]
        for what, answers in (("zeros", torch.zeros_like), ("ones", torch.ones_like)):
            if all(_passes(case, answers) for case in cases):
                raise Failed(
                    "no_plan", f"all {what} would pass for the reference's output: nothing can be verified"
                )
        for index in range(len(cases[0].inputs)):
            if all(_is_input(case, index) for case in cases):
                raise Failed(
                    "no_plan", f"input {index} itself would pass for the output: nothing can be verified"
                )

    def _seeded(self, seed: int) -> Case | None:
        given = self.worker.ask("inputs", self.timeout, seed=seed)
        return self._case(f"seed{seed}", seed, given, self._run(given, seed, 0)["outputs"], None)

    def _trained(self) -> Case | None:
        base = self._cases["seed0"]
        assert base is not None
        if not self.trained:
            return None
        self.worker.ask("write_state", self.timeout, values=self.trained)
        try:
            return self._made(TRAINED, base.inputs)
        finally:
            if not self.worker.dead:
                self.worker.ask("write_state", self.timeout, values=self.even)

    def _fill(self, kind: FillKind) -> Case | None:
        base = self._cases["seed0"]
        assert base is not None
        if not inputs.changeable(base.inputs):
            return None
        return self._made(kind, inputs.refill(base.inputs, kind, seed=len(kind)))

    def _made(self, name: str, given: list[Any]) -> Case | None:
        try:
            outputs = self._run(given, 0, 0)["outputs"]
        except Failed as failure:
            if self.worker.dead:
                raise
            return None if failure.verdict == "crash" else _raise(failure)
        finite = all(
            bool(torch.isfinite(t).all()) for _, t in compare.tensors(outputs) if t.is_floating_point()
        )
        if name == "sparse" and any(compare.is_place(tensor) for _, tensor in compare.tensors(outputs)):
            return None
        return self._case(name, 0, given, outputs, None) if finite else None

    def _case(self, name: str, seed: int, given: list[Any], outputs: Any, again: Any) -> Case | None:
        """Bounds for each output; None where the reference is too sensitive for a fair comparison."""
        others = [again] if again is not None else []
        others += list(self._second_opinions(given, seed))
        biased = name == "near_constant"
        others += list(self._around_decisions(given, seed, outputs, biased))
        limits: list[Bounds] = []
        for index, (_, expected) in enumerate(compare.tensors(outputs)):
            noise, uncertain = 0.0, None
            for other in others:
                found = [tensor for _, tensor in compare.tensors(other)]
                if index >= len(found):
                    return None
                share, jumps = compare.spread(expected, found[index])
                if share > compare.NOISE_CAP and compare.is_decision(expected) and name.startswith("seed"):
                    continue  # the given inputs are what it is for: decisions as fine as rounding, then exactly
                noise = max(noise, share)
                uncertain = jumps if uncertain is None else uncertain if jumps is None else uncertain | jumps
            dtype = max(self._dtype, expected.dtype, key=_coarseness)
            if noise > compare.NOISE_CAP or (biased and noise > _ILL_CONDITIONED * _coarseness(dtype)):
                return None
            limits.append(compare.bounds(dtype, self._accumulation, biased, noise, self.tolerance, uncertain))
            limits[-1] = replace(limits[-1], scale=compare.scale(expected))
        return Case(name, seed, given, outputs, limits, self._strides)

    def _second_opinions(self, given: list[Any], seed: int) -> Iterator[Any]:
        """The same outputs in float64, and from inputs that are one rounding step away.

        Either alone can be right by luck: where values cancel or are exponentiated, what an honest rewrite with
        another order of arithmetic gives differs by more than the reference happens to be wrong by.
        """
        if self.seconds > _DOUBLE_SECONDS:
            return
        if not self.has_kernels and self._dtype != torch.float64:
            try:
                yield self._run(given, seed, 0, double=True)["outputs"]
            except Failed as failure:
                # Not every module runs in float64; that is no fault of anybody's.
                if self.worker.dead or failure.verdict == "infra_error":
                    raise
        if inputs.changeable(given):
            yield self._run(inputs.nudge(given, seed), seed, 0)["outputs"]

    def _around_decisions(self, given: list[Any], seed: int, outputs: Any, biased: bool) -> Iterator[Any]:
        """Where outputs are decisions (integers, booleans): the outputs from inputs as far away as sums may be off."""
        found = [tensor for _, tensor in compare.tensors(outputs)]
        decides = any(compare.is_decision(tensor) for tensor in found) and inputs.changeable(given)
        if not decides or self.seconds > _DOUBLE_SECONDS:
            return
        # A sum over everything may stand behind every decision, whatever the shapes say.
        steps = compare.growth(max(tensor.numel() for _, tensor in compare.tensors(given)), biased)
        moved = self._run(inputs.nudge(given, seed, steps), seed, 0)["outputs"]
        pairs = zip(found, (tensor for _, tensor in compare.tensors(moved)), strict=False)
        yield [new if compare.is_decision(old) else old for old, new in pairs]

    def _run(self, given: list[Any], seed: int, poison: int, double: bool = False) -> dict[str, Any]:
        options = RunOptions(poison=poison, double=double)
        started = time.monotonic()
        result = self.worker.run_module(
            self.timeout, self.build_timeout, inputs=given, options=vars(options), seed=seed
        )
        self.overwrites = self.overwrites or result["overwritten"]
        self.longest = max(self.longest, time.monotonic() - started)
        return result


def _passes(case: Case, make: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    outputs = zip(compare.tensors(case.expected), case.limits, strict=True)
    return all(compare.may_pass(expected, make, limit) for (_, expected), limit in outputs)


def _is_input(case: Case, index: int) -> bool:
    value = case.inputs[index]
    outputs = list(compare.tensors(case.expected))
    if not isinstance(value, torch.Tensor) or len(outputs) != 1:
        return False
    expected = outputs[0][1]
    if value.dtype != expected.dtype or value.numel() != expected.numel():
        return False
    if not compare.same_bits(value.reshape(-1)[:64], expected.reshape(-1)[:64]) and expected.numel() > 64:
        sample = expected.reshape(-1)[:64]
        if not compare.compare_tensor(sample, value.reshape(-1)[:64], case.limits[0]).ok:
            return False
    return compare.compare_tensor(expected, value.reshape(expected.shape), case.limits[0]).ok


def _coarseness(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def _raise(error: Exception) -> Any:
    raise error
