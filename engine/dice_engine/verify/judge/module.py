"""Judging a module: does the candidate give the reference's outputs, and do its kernels do the work?"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from dice_engine.verify import compare, inputs
from dice_engine.verify.judge import fallback, weights
from dice_engine.verify.judge.dynamic import REFERENCE_USED
from dice_engine.verify.judge.findings import Findings, deceptive, words
from dice_engine.verify.judge.reference import WEIGHT_SEED, Case, Reference
from dice_engine.verify.program import RunOptions
from dice_engine.verify.verdict import BuildInfo
from dice_engine.verify.worker import Failed, Worker

_MANY = 16
_CHANCE = re.compile(
    r"rand(?:n|int|perm)?(?:_like)?|bernoulli|multinomial|normal|uniform|random|exponential|cauchy|geometric|native_dropout"
)
_LOADING_SECONDS = 10.0
"""More than a run gets: to import what it imports and to open the GPU."""
_WATCHED_SECONDS = 0.5
_CALLS, _CALLS_SECONDS = 64, 0.5


class ModuleTrial:
    """All checks of one candidate module; ``run`` raises Failed at the first that it does not pass.

    ``trusted``: the candidate means no harm, so only what it computes is checked.
    """

    def __init__(self, worker: Worker, timeout: float, budget: float, trusted: bool = False):
        self.worker = worker
        self.timeout = timeout
        self.budget = budget
        self.trusted = trusted
        self.build_timeout = timeout
        self.until = 0.0
        self.seconds = 0.0
        self.found = Findings()

    def load(
        self,
        text: str,
        class_name: str,
        tripwire: str | None,
        build_timeout: float,
        headers: str | None = None,
        clock: bool = False,
    ) -> None:
        """Execute the candidate's text in its runner; compiles its kernels."""
        self.build_timeout = build_timeout
        build = self.worker.ask(
            "load_module",
            self.timeout + _LOADING_SECONDS,
            building=build_timeout,
            text=text,
            role="candidate",
            class_name=class_name,
            tripwire=tripwire,
            headers=headers,
            clock=clock,
        )
        self._note_build(build)
        self._conduct()

    def construct(self, reference: Reference, build_timeout: float, keep_state: bool = False) -> None:
        """Make the candidate's module with the reference's arguments and weights.

        ``keep_state``: a state_dict of the one must fit the other.
        """
        self.reference = reference
        self.state = self._new(build_timeout)
        self._conduct()
        theirs = {(name, dtype, tuple(shape)): digest for name, dtype, shape, digest in self.state}
        if keep_state:
            self._same_state({name: (dtype, shape) for name, dtype, shape in theirs})
        differing = [
            name
            for name, dtype, shape, digest in self.reference.state
            if theirs.get((name, dtype, tuple(shape)), digest) != digest
        ]
        if differing:
            values = self.reference.worker.ask("read_state", self.timeout, names=differing)
            self.worker.ask("write_state", self.timeout, values=values)

    def _new(self, build_timeout: float) -> list[weights.Entry]:
        """A module of the candidate's class as its constructor leaves it: what its state_dict holds."""
        made = self.worker.ask(
            "construct",
            self.timeout + _LOADING_SECONDS,
            building=build_timeout,
            init_inputs=self.reference.init_inputs,
            seed=WEIGHT_SEED,
        )
        self._note_build(made["build"])
        return [tuple(entry) for entry in made["state"]]

    def _same_state(self, theirs: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        ours = {name: (dtype, tuple(shape)) for name, dtype, shape, _ in self.reference.state}
        for name in [*ours, *theirs]:
            if ours.get(name) != theirs.get(name):
                what = (
                    "lacks"
                    if name not in theirs
                    else "adds"
                    if name not in ours
                    else "changes the shape or type of"
                )
                raise Failed(
                    "mismatch",
                    f"its state_dict {what} {name}: it cannot take the class's place",
                    "state_dict",
                )

    def run(self, cpu: bool, seeds: Sequence[int] = ()) -> None:
        """Every check that needs no clock, the telling ones first; later ones only while the budget lasts.

        ``seeds``: of inputs beside the usual ones that must be right too (other sizes).
        """
        self.until = time.monotonic() + self.budget
        first, second = self._case("seed0"), self._case("seed1")
        try:
            outputs = self._judge(first, RunOptions(poison=0))
            others = self._judge(second, RunOptions(poison=1))
        except Failed as failure:
            self._explain(failure, first, second)
            raise
        self._changes(first, outputs, second, others)
        for seed in seeds:
            self._judge(self._case(f"seed{seed}"), RunOptions(poison=seed % 2))
        if not self.trusted:
            fallback.keeps_all(self.reference, self.found.kept)
            fallback.with_idle_kernels(self._run, self.worker, self.reference, first)
            fallback.with_failing_kernels(self._run, self.worker, first)
        if cpu:
            self._judge(first, RunOptions(order="reverse", poison=1), rule="race")
        self._with_other_weights()
        for name in inputs.FILLS:
            case = self.reference.case(name) if self._time_left() else None
            if case is not None:
                self._judge(case, RunOptions(poison=1))
        if self._time_left():
            self._same_address()
        if cpu and self._time_left():
            self._judge(second, RunOptions(order="shuffled"), rule="race")
        if cpu and not self.trusted:
            self._called_often(second)
        self._conduct()
        if cpu:
            self._watched(first)

    def agrees(self, trials: int, tolerance: float) -> bool:
        """Whether outputs are close on the given inputs under ``trials`` seeds; no rule is applied."""
        for number in range(trials):
            case = self._case(f"seed{number}")
            found = [tensor for _, tensor in compare.tensors(self._run(case, RunOptions())["outputs"])]
            wanted = [tensor for _, tensor in compare.tensors(case.expected)]
            if len(found) != len(wanted):
                return False
            for ours, theirs in zip(found, wanted, strict=True):
                values, others = compare.as_float64(ours), compare.as_float64(theirs)
                if values.shape != others.shape:
                    return False
                if not torch.allclose(values, others, rtol=tolerance, atol=tolerance):
                    return False
        return True

    def _case(self, name: str) -> Case:
        case = self.reference.case(name)
        if case is None:
            raise Failed("no_plan", "the reference is not finite or not reproducible on its own inputs")
        return case

    def _time_left(self) -> bool:
        return time.monotonic() < self.until

    def _run(self, case: Case, options: RunOptions) -> dict[str, Any]:
        try:
            return self.worker.run_module(
                self.timeout,
                self.build_timeout,
                inputs=case.inputs,
                options=vars(options),
                seed=case.seed,
            )
        except Failed as failure:
            if REFERENCE_USED in failure.reason:
                raise deceptive("inherits_reference", failure.reason) from failure
            raise

    def _judge(self, case: Case, options: RunOptions, rule: str | None = None) -> Any:
        """Run one case and hold everything it shows against the rules. ``rule``: what a mismatch here means."""
        result = self._run(case, options)
        self.found.kept = result["ops"]
        self.seconds = result["seconds"]
        self._note_build(result["build"])
        self._honest(result)
        self._on_device(case, result)
        self._by_chance(result)
        launched = result["launches"]
        self.found.launches = min(self.found.launches or launched, launched)
        limits = case.limits
        check = compare.compare(case.expected, result["outputs"], limits)
        self.found.max_abs = max(self.found.max_abs, check.max_abs)
        self.found.max_rel = max(self.found.max_rel, check.max_rel)
        if result["damage"]:
            raise Failed("mismatch", f"on {words(case)} a kernel {result['damage']}", "out_of_bounds")
        if result["unasked"] and not self.reference.has_kernels:
            raise Failed("crash", result["unasked"], "launch_error")
        if not check.ok:
            unwritten = self._unwritten(case, options, result)
            if unwritten > 0.9:
                raise deceptive("stale_memory", "the output is memory that was never written")
            if unwritten > 0:
                reason = f"on {words(case)} {check.reason}; part of the output was never written"
                raise Failed("mismatch", reason)
            if rule == "race":
                raise Failed(
                    "mismatch", f"the result depends on the order of threads: {check.reason}", "race"
                )
            raise Failed("mismatch", f"on {words(case)} {check.reason}", rule or check.rule)
        extra = [name for name in result["mutated"] if name not in self.reference.mutated]
        if extra:
            raise Failed(
                "mismatch", f"{extra[0]} is changed, the reference leaves it alone", "input_mutation"
            )
        shared = [words for words in result["shared_memory"] if words not in self.reference.shared_memory]
        if shared:
            reason = (
                f"output {shared[0].replace(' in ', ' lies in the memory of ')}, the reference's does not"
            )
            raise Failed("mismatch", reason, "lazy_output")
        if result["overwritten"] and not self.reference.overwrites:
            reason = "its output changes when it is called again: both calls return the same memory"
            raise Failed("mismatch", reason)
        for (path, _), ours, theirs in zip(
            compare.tensors(case.expected), result["strides"], case.strides, strict=False
        ):
            if ours and ours != theirs:
                wanted = f"strides {theirs}" if theirs else "contiguous memory"
                raise Failed("mismatch", f"{path} has strides {ours}, the reference {wanted}", "lazy_output")
        self.found.trials += 1
        return result["outputs"]

    def _with_other_weights(self) -> None:
        """Weights that are even in a new module must be read, as they are when ``forward`` runs. What was made of them
        at an earlier call may stay: a new module of the class decides."""
        even = list(self.reference.trained)
        case = self.reference.case(weights.TRAINED) if even else None
        names = weights.counterparts(even, self.reference.state, self.state)
        if case is None or names is None:
            return
        values = {names[name]: value for name, value in self.reference.trained.items()}
        self.worker.ask("write_state", self.timeout, values=values)
        try:
            self._judge(case, RunOptions(poison=1))
        except Failed as failure:
            if failure.verdict != "mismatch" or self.worker.dead:
                raise
            self._new(self.build_timeout)
            self.worker.ask("write_state", self.timeout, values=values)
            self._judge(case, RunOptions(poison=1))
            self.construct(self.reference, self.build_timeout)
            return
        before = {names[name]: value for name, value in self.reference.even.items()}
        self.worker.ask("write_state", self.timeout, values=before)

    def _unwritten(self, case: Case, options: RunOptions, result: dict[str, Any]) -> float:
        """Share of the output that holds the poison of new memory, whichever poison it is: one of them is NaN, which
        a kernel may also compute."""
        share = float(result["poison_share"])
        if not share:
            return 0.0
        try:
            other = self._run(case, replace(options, poison=1 - options.poison))
        except Failed:
            return 0.0
        return min(share, float(other["poison_share"]))

    def _on_device(self, case: Case, result: dict[str, Any]) -> None:
        """Numbers that go to the host are not worked on by kernels; a scalar or a few lengths may go."""
        sizes = [
            tensor.numel()
            for _, tensor in compare.tensors(case.inputs)
            if tensor.dtype.is_floating_point and tensor.numel() >= _MANY
        ]
        if (
            sizes
            and 2 * result["host_reads"] >= min(sizes)
            and result["host_reads"] > self.reference.host_reads
        ):
            raise deceptive(
                "torch_fallback", f"forward reads {result['host_reads']} numbers of its tensors on the host"
            )

    def _by_chance(self, result: dict[str, Any]) -> None:
        drawn = sorted(op for op in result["ops"] if _CHANCE.fullmatch(op))
        if drawn and not any(_CHANCE.fullmatch(op) for op in self.reference.ops):
            raise Failed("mismatch", f"it draws random numbers ({drawn[0]}), the reference none")

    def _honest(self, result: dict[str, Any]) -> None:
        if result["odd_outputs"]:
            raise deceptive("lazy_output", result["odd_outputs"][0])
        if result["threads"]:
            raise deceptive("background_work", "forward starts threads: what they do cannot be followed")
        if result["launches"]:
            return
        kept = ", ".join(sorted(result["ops"]))
        if self.found.build.backend:
            rest = f"; torch computes {kept}" if kept else ""
            raise deceptive("no_launch", f"none of its kernels is launched in forward{rest}")
        if kept:
            raise deceptive("torch_fallback", f"it has no kernel of its own; torch computes {kept}")
        raise deceptive("no_launch", "it has no kernel of its own")

    def _changes(self, first: Case, outputs: Any, second: Case, others: Any) -> None:
        tensors = [tensor for _, tensor in compare.tensors(outputs)]
        if not any(bool(torch.isfinite(tensor).any()) for tensor in tensors):
            return  # broken, not made up
        if compare.identical(outputs, others) and not compare.identical(first.expected, second.expected):
            raise deceptive("constant_output", "its output does not change with its inputs")

    def _explain(self, failure: Failed, first: Case, second: Case) -> None:
        """A wrong output that does not depend on the inputs is worse than wrong: raise for that instead."""
        if failure.verdict != "mismatch" or self.worker.dead:
            return
        try:
            outputs = [self._run(case, RunOptions())["outputs"] for case in (first, second)]
        except Failed:
            return
        self._changes(first, outputs[0], second, outputs[1])

    def _same_address(self) -> None:
        """New contents at the address of the last call: an answer kept by address or identity is stale now, or one kept
        by the first number or the sum."""
        first, third = self._case("seed0"), self.reference.case("moved")
        if third is None or compare.compare(first.expected, third.expected, first.limits).ok:
            third = self.reference.case("seed2")
        if third is None:
            return
        self._run(first, RunOptions())
        try:
            self._judge(third, RunOptions(reuse_inputs=True))
        except Failed as failure:
            stale = failure.verdict == "mismatch" and failure.rule is None
            if not stale and failure.rule != "no_launch":
                raise
            self._judge(third, RunOptions())
            raise deceptive(
                "caching", "it answers from an earlier call when new inputs lie at an old address"
            ) from failure

    def _watched(self, case: Case) -> None:
        """A slower run that sees updates which a GPU would lose and loads from outside the buffers; only for runs that
        are fast without it."""
        if self.seconds > _WATCHED_SECONDS:
            return
        options = vars(RunOptions(order="watched"))
        try:
            # Its kernels are built once more, so it has the time of a build.
            result = self.worker.run_module(
                self.build_timeout, self.build_timeout, inputs=case.inputs, options=options, seed=case.seed
            )
        except Failed:
            return  # what the watched build cannot do says nothing about the candidate: it has passed as it is
        if result["race"]:
            raise Failed("mismatch", f"a race: {result['race']}", "race")
        if result["misaligned"] and not self.reference.has_kernels:
            raise Failed("crash", f"cudaErrorMisalignedAddress: {result['misaligned']}", "launch_error")
        if result["stray"] and not self.reference.has_kernels:
            raise Failed("mismatch", result["stray"], "out_of_bounds")

    def _called_often(self, case: Case) -> None:
        """Many calls in a row: what was computed at first must be computed at last. (On a GPU the clock sees that.)"""
        last = self.worker.ask(
            "repeat_module",
            self.timeout,
            inputs=case.inputs,
            seed=case.seed,
            calls=_CALLS,
            seconds=_CALLS_SECONDS,
        )
        check = compare.compare(case.expected, last["outputs"], case.limits)
        if last["launches"] < self.found.launches:
            raise deceptive("caching", "after some calls it launches fewer kernels")
        if not check.ok:
            raise Failed("mismatch", f"after some calls {check.reason}", check.rule)

    def _conduct(self) -> None:
        if self.trusted:
            return
        conduct = self.worker.ask("conduct", self.timeout)
        if conduct["tampered"]:
            raise deceptive("tampering", f"it replaced {', '.join(conduct['tampered'][:3])}")
        if conduct["inherited"]:
            raise deceptive("inherits_reference", conduct["inherited"])
        if conduct["left"]:
            raise deceptive("background_work", f"it leaves {conduct['left']} running")

    def _note_build(self, build: dict[str, Any]) -> None:
        self.found.build = BuildInfo(build["backend"], round(build["seconds"], 3), build["log"])
