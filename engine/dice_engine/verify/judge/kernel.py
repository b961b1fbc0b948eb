"""Judging a kernel: original and candidate run the same plan from the same contents; what they leave is compared."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from dice_engine.source.plan import Plan
from dice_engine.source.plans import checking_sizes, measuring_sizes, total_elements
from dice_engine.verify import compare, inputs
from dice_engine.verify.compare import Bounds
from dice_engine.verify.judge.findings import Findings
from dice_engine.verify.judge.kernel_cases import (
    GIVEN,
    MOVED,
    OTHER,
    case_message,
    case_names,
    other_contents,
    other_sizes,
    plan_message,
)
from dice_engine.verify.judge.kernel_sizes import large_sizes, special_sizes
from dice_engine.verify.program import RunOptions
from dice_engine.verify.verdict import BuildInfo
from dice_engine.verify.worker import Failed, Worker

_CALLS, _CALLS_SECONDS = 32, 0.25
_ELSEWHERE = 16
"""Cases at sizes beside the plan's that are kept for the next candidate."""
_ELSEWHERE_SECONDS, _ELSEWHERE_GPU_SECONDS = 2.5, 0.3
_RUNS = 6
"""Of the original and the candidate, at a size beside the plan's."""
_WATCHED_SECONDS = 0.5
"""A run that takes longer is not run again in the watched build, which is ten to fifty times slower."""
_QUICK_SECONDS = 0.02
"""A run at a size beside the plan's that takes longer is not watched."""


@dataclass
class KernelCase:
    """One run of the plan: its inputs as a message for a runner, what the original made of them, the bounds."""

    name: str
    message: dict[str, Any]
    expected: dict[str, torch.Tensor]
    limits: list[Bounds]

    @property
    def elements(self) -> int:
        return _elements(self.message)


def _elements(message: dict[str, Any]) -> int:
    return sum(contents.numel() for contents in message["buffers"].values())


class Pace:
    """How fast one side runs, by its largest case so far, with everything around the run."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """For an element."""
        self._largest = 0

    def note(self, elements: int, seconds: float) -> None:
        if elements >= self._largest:
            self._largest, self.seconds = elements, seconds / max(1, elements)


class OriginalKernel:
    """The original kernel in its runner; its cases are computed once and serve every candidate."""

    def __init__(
        self,
        worker: Worker,
        text: str,
        plan: Plan,
        timeout: float,
        build_timeout: float,
        cpu: bool,
        clock: bool = False,
    ):
        self.worker = worker
        self.text = text
        self.given_sizes = len(plan.sizes)
        self.plan = plan = replace(plan, sizes=(*plan.sizes, *other_sizes(plan)))
        """With sizes beside the given ones at the end: they count only where the original is made for them."""
        self.timeout = timeout
        self.cpu = cpu
        self.mutated: set[str] = set()
        self.unasked = False
        """Whether a launch of it wants more shared memory than anything in the file asks for."""
        self.longest = 0.0
        """Seconds of its longest run so far, with everything around it."""
        self.pace = Pace()
        self._cases: dict[str, KernelCase | None] = {}
        self._elsewhere: dict[str, KernelCase | None] = {}
        worker.ask("load_kernel", build_timeout, text=text, plan=plan_message(plan), clock=clock)
        self._names = list(case_names(plan, self.given_sizes))
        if not any(self.case(name) is not None for name in self._names):
            raise Failed(
                "no_plan",
                "the original is not reproducible: two runs from the same contents differ when its threads run in "
                "another order or its inputs move by one rounding step",
            )

    def cases(self) -> Iterator[KernelCase]:
        """Every usable case, the most telling first."""
        for name in self._names:
            case = self.case(name)
            if case is not None:
                yield case

    def case(self, name: str) -> KernelCase | None:
        if name not in self._cases:
            template, sizes, seed, fill = name.split("/")
            self._cases[name] = self._make(name, int(template), int(sizes), int(seed), fill)
        return self._cases[name]

    def timing_case(self) -> KernelCase | None:
        """The plan's measuring size under its first template binding."""
        return self.case(f"0/{self.plan.sizes.index(measuring_sizes(self.plan))}/0/{GIVEN}")

    def _make(self, name: str, template: int, sizes: int, seed: int, fill: str) -> KernelCase | None:
        return self._made(name, self._message(template, sizes, seed, fill), seed, fill)

    def elsewhere(self, sizes: dict[str, int]) -> KernelCase | None:
        """The case of sizes that the plan does not name, None where the original is not made for them."""
        name = f"0/{sizes}/0/{OTHER}"
        if name not in self._elsewhere:
            message = case_message(replace(self.plan, sizes=(sizes,)), 0, 0, 0, OTHER)
            self._elsewhere[name] = self._made(name, message, 0, OTHER)
            if len(self._elsewhere) > _ELSEWHERE:
                del self._elsewhere[next(iter(self._elsewhere))]
        return self._elsewhere[name]

    def _made(self, name: str, message: dict[str, Any], seed: int, fill: str) -> KernelCase | None:
        if fill == OTHER and not self._made_for(message):
            return None
        first = self._run(message)
        if first["damage"]:
            raise Failed(
                "no_plan", f"with the plan's sizes the original itself {first['damage']}{self._places()}"
            )
        if not first["launches"]:
            raise Failed("no_plan", f"running the plan does not launch {self.plan.kernel}")
        self.mutated |= set(first["mutated"])
        self.unasked = self.unasked or first["unasked"] is not None
        expected: dict[str, torch.Tensor] = first["outputs"]
        if fill != GIVEN and not all(
            bool(torch.isfinite(t).all()) for t in expected.values() if t.dtype.is_floating_point
        ):
            return None
        if fill == "sparse" and any(compare.is_place(t) for t in expected.values()):
            return None
        if all(compare.same_bits(expected[key], message["buffers"][key]) for key in expected):
            if fill != GIVEN:  # a clamp in place leaves positive inputs as they are
                return None
            raise Failed("no_plan", "the original changes none of its buffers: nothing can be verified")
        others = [self._run(message, order="reverse")["outputs"]]
        nudged = {**message, "buffers": inputs.nudge(message["buffers"], seed)}
        if inputs.changeable(message["buffers"]):
            others.append(self._run(nudged)["outputs"])
        dtype = compare.lowest_dtype(message["buffers"])
        total_in = sum(contents.numel() for contents in message["buffers"].values())
        reach = total_in // max(1, sum(t.numel() for t in expected.values()))
        values = message["sizes"].values()
        accumulation = max(1, reach, max(values) if len(values) > 1 else 1)
        limits = []
        for key, want in expected.items():
            noise, uncertain = 0.0, None
            written = want != message["buffers"][key]
            for other in reversed(others):
                share, jumps = compare.spread_where(written, want, other[key])
                if other is others[0] and jumps is not None:
                    rounding = torch.zeros_like(jumps) if uncertain is None else uncertain
                    if bool((jumps & ~rounding).any()):
                        return None  # no decision as fine as rounding: the order of threads decides
                if share > compare.NOISE_CAP and compare.is_decision(want) and fill in (GIVEN, OTHER):
                    continue  # bits of floats, say: compared exactly
                noise = max(noise, share)
                uncertain = jumps if uncertain is None else uncertain if jumps is None else uncertain | jumps
            if noise > compare.NOISE_CAP or not _exactly_repeated(want, others[0][key]):
                return None
            coarse = max(dtype, want.dtype, key=lambda d: torch.finfo(d).eps if d.is_floating_point else 0.0)
            limits.append(
                compare.bounds(
                    coarse, accumulation, fill == "near_constant", noise, self.plan.tolerance, uncertain
                )
            )
            if bool(written.any()):  # what it leaves alone says nothing about the size of what it writes
                result = want[written]
                squares = float(compare.as_float64(result).square().sum())
                limits[-1] = replace(limits[-1], scale=compare.scale(result), squares=squares)
        return KernelCase(name, message, expected, limits)

    def _message(self, template: int, size: int, seed: int, fill: str) -> dict[str, Any]:
        return case_message(self.plan, template, size, seed, fill)

    def _made_for(self, message: dict[str, Any]) -> bool:
        """Whether the original is meant for these sizes: it writes all of what it only writes, and stays inside."""
        try:
            results = [self._run(message), self._run(other_contents(self.plan, message))]
        except Failed as failure:
            if self.worker.dead or failure.verdict == "infra_error":
                raise
            return False
        if any(result["damage"] or not result["launches"] for result in results):
            return False
        first, second = (result["outputs"] for result in results)
        return all(compare.same_bits(first[key], second[key]) for key in first)

    def _places(self) -> str:
        """What to write where a buffer of integers that nothing says how to fill may hold places in another."""
        unsaid = [
            buffer.name
            for buffer in self.plan.buffers
            if self.plan.source == "launch" and buffer.role == "in" and buffer.fill.kind == "int"
        ]
        if not unsaid:
            return ""
        rules = ", ".join(f"{name}=int[0,{next(iter(self.plan.sizes[0]))})" for name in unsaid)
        return f"; where {' and '.join(unsaid)} holds places in it, say which: add // @dice fill({rules})"

    def watched(self, case: KernelCase) -> dict[str, Any]:
        """What a watched run of the original shows: what it does itself is not held against a rewrite."""
        options = {**vars(RunOptions()), "order": "watched"}
        return self.worker.ask("run_kernel", 4 * self.timeout, case=case.message, options=options)

    def _run(self, message: dict[str, Any], order: str = "forward") -> dict[str, Any]:
        options = {**vars(RunOptions()), "order": order if self.cpu else "forward"}
        started = time.monotonic()
        result = self.worker.ask("run_kernel", self.timeout, case=message, options=options)
        seconds = time.monotonic() - started
        self.longest = max(self.longest, seconds)
        self.pace.note(_elements(message), seconds)
        return result


class KernelTrial:
    """All checks of one candidate kernel; ``run`` raises Failed at the first that it does not pass."""

    def __init__(self, worker: Worker, timeout: float, budget: float):
        self.worker = worker
        self.timeout = timeout
        self.budget = budget
        self.found = Findings()
        self.build_timeout = timeout
        self.seconds = 0.0
        self.pace = Pace()
        self._quick: list[KernelCase] = []
        """Of sizes beside the plan's: those that ran in no time."""

    def load(self, text: str, plan: Plan, build_timeout: float, clock: bool = False) -> None:
        """Compile the candidate in its runner."""
        self.build_timeout = build_timeout
        self.text = text
        build = self.worker.ask("load_kernel", build_timeout, text=text, plan=plan_message(plan), clock=clock)
        self.found.build = BuildInfo(build["backend"], round(build["seconds"], 3), build["log"])

    def run(self, original: OriginalKernel) -> None:
        """Every binding at every size; more seeds and fills while the budget lasts."""
        self.original = original
        until = time.monotonic() + self.budget
        combinations = len(original.plan.templates) * len(checking_sizes(original.plan))
        for number, case in enumerate(original.cases()):
            if number >= combinations and time.monotonic() > until:
                break
            given = original.case(case.name.replace(MOVED, GIVEN)) if case.name.endswith(MOVED) else None
            if given is not None:
                self._judge(given, "forward", None)
            self._judge(case, "forward", None, again=given is not None)
            if original.cpu and number < combinations:
                self._judge(case, "reverse", "race")
        self._at_other_sizes()
        if original.cpu:
            self._called_often(min(original.cases(), key=lambda case: case.elements))
            for case in (*itertools.islice(original.cases(), combinations), *self._quick):
                self._watched(case)
        if self.found.trials == 0:
            raise Failed("no_plan", "the original is too sensitive to rounding for a fair comparison")

    def _at_other_sizes(self) -> None:
        """Where the text may do something else, and at a large size: as many as there is time for."""
        original = self.original
        until = time.monotonic() + (_ELSEWHERE_SECONDS if original.cpu else _ELSEWHERE_GPU_SECONDS)
        usual = max(total_elements(original.plan, sizes) for sizes in checking_sizes(original.plan))

        def affordable(sizes: dict[str, int]) -> bool:
            seconds = max(original.pace.seconds, self.pace.seconds) * total_elements(original.plan, sizes)
            return _RUNS * seconds < until - time.monotonic()

        def judge(sizes: dict[str, int]) -> None:
            case = original.elsewhere(sizes)
            if case is not None:
                self._judge(case, "forward", None)
                self._quick += [case] if self.seconds < _QUICK_SECONDS else []

        for sizes in special_sizes(original.plan, self.text, original.text):
            if affordable(sizes):
                judge(sizes)
        if original.cpu:  # on a GPU the outputs under the clock are compared
            alone, shrinking = large_sizes(original.plan)
            for sizes in alone:
                if total_elements(original.plan, sizes) <= usual or affordable(sizes):
                    judge(sizes)
            for sizes in itertools.islice(filter(affordable, shrinking), 1):
                judge(sizes)

    def _called_often(self, case: KernelCase) -> None:
        """Many runs in a row: what was computed at first must be computed at last. (On a GPU the clock sees that.)"""
        until = time.monotonic() + _CALLS_SECONDS
        for _ in range(_CALLS):
            self._judge(case, "forward", None)
            if time.monotonic() > until:
                break

    def _watched(self, case: KernelCase) -> None:
        """A slower run that sees updates which a GPU would lose, and loads from outside the buffers. What the original
        does too is the user's affair."""
        if self.seconds > _WATCHED_SECONDS:
            return
        options = {**vars(RunOptions()), "order": "watched"}
        try:
            # The kernel is built once more, so this has the time of a build.
            result = self.worker.ask("run_kernel", self.build_timeout, case=case.message, options=options)
            suspect = result["race"] or result["stray"] or result["misaligned"]
            own = self.original.watched(case) if suspect else {}
        except Failed as failure:
            if failure.by_reference and self.original.worker.dead:
                raise
            return  # what the watched build cannot do says nothing about the candidate: it has passed as it is
        if suspect and result["misaligned"] and not own["misaligned"]:
            reason = f"{_words(case)}: cudaErrorMisalignedAddress: {result['misaligned']}"
            raise Failed("crash", reason, "launch_error")
        if suspect and result["race"] and not own["race"]:
            raise Failed("mismatch", f"{_words(case)}: a race: {result['race']}", "race")
        if suspect and result["stray"] and not own["stray"]:
            raise Failed("mismatch", f"{_words(case)}: {result['stray']}", "out_of_bounds")

    def _judge(self, case: KernelCase, order: str, rule: str | None, again: bool = False) -> None:
        """``again``: in the buffers of the last run, so that what is kept by address is stale."""
        options = {**vars(RunOptions()), "order": order, "reuse_inputs": again}
        started = time.monotonic()
        result = self.worker.ask(
            "run_kernel", self.timeout, building=self.build_timeout, case=case.message, options=options
        )
        self.seconds = result["seconds"]
        self.pace.note(case.elements, time.monotonic() - started)
        where = _words(case)
        if not result["launches"]:
            raise Failed("deceptive", "none of its kernels is launched", "no_launch")
        if result["damage"]:
            raise Failed("mismatch", f"{where}: the kernel {result['damage']}", "out_of_bounds")
        if result["unasked"] and not self.original.unasked:
            raise Failed("crash", f"{where}: {result['unasked']}", "launch_error")
        outputs = result["outputs"]
        check = compare.compare(case.expected, outputs, case.limits, name="")
        self.found.max_abs = max(self.found.max_abs, check.max_abs)
        self.found.max_rel = max(self.found.max_rel, check.max_rel)
        if not check.ok:
            if case.name.endswith(MOVED) and self._as_before(case, outputs):
                raise Failed("deceptive", "it answers for the inputs of an earlier call", "caching")
            if rule == "race":
                reason = f"{where}: the result depends on the order of threads: {check.reason}"
                raise Failed("mismatch", reason, "race")
            raise Failed("mismatch", f"{where}: {check.reason}", check.rule)
        extra = [name for name in result["mutated"] if name not in self.original.mutated]
        if extra:
            raise Failed("mismatch", f"{where}: it writes its input {extra[0]}", "input_mutation")
        self.found.trials += 1

    def _as_before(self, case: KernelCase, outputs: dict[str, torch.Tensor]) -> bool:
        given = self.original.case(case.name.replace(MOVED, GIVEN))
        return given is not None and compare.compare(given.expected, outputs, given.limits, name="").ok


def _exactly_repeated(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.dtype.is_floating_point or compare.same_bits(first, second)


def _words(case: KernelCase) -> str:
    sizes = ", ".join(f"{name}={value}" for name, value in case.message["sizes"].items())
    types = ", ".join(f"{name}={value}" for name, value in case.message["template"].items())
    fill = case.name.rsplit("/", 1)[-1].replace("_", "-")
    parts = [part for part in (sizes, types, "" if fill in (GIVEN, OTHER) else f"{fill} inputs") if part]
    return f"at {'; '.join(parts)}" if parts else "at the plan's sizes"
