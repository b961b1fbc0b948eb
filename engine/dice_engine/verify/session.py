"""The judge: verdicts on candidates against their references.

A ``VerifySession`` lives in the caller's process. It keeps inputs, expected outputs, comparison and the clock's
verdict; references and candidates run in processes of their own (``worker``), which only ever see inputs.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import platformdirs
import torch

from dice_engine.source.plan import Plan, Tolerance
from dice_engine.source.plans import kernel_plan
from dice_engine.typed import TypeMismatch, structure
from dice_engine.verify import cache as verdict_cache
from dice_engine.verify import gpu, timing
from dice_engine.verify.build import host
from dice_engine.verify.build.interface import InfraError
from dice_engine.verify.build.process import Builds
from dice_engine.verify.cache import VerdictCache
from dice_engine.verify.folder import SessionFolder
from dice_engine.verify.host_module import CLASS, FIRST_OTHER_SEED, host_module, size_sets
from dice_engine.verify.judge import static
from dice_engine.verify.judge.findings import Findings
from dice_engine.verify.judge.kernel import KernelTrial, OriginalKernel
from dice_engine.verify.judge.kernel_fixture import FixtureKernel
from dice_engine.verify.judge.module import ModuleTrial
from dice_engine.verify.judge.outcome import (
    correct,
    failed,
    reference_failed,
    refused,
)
from dice_engine.verify.judge.reference import Reference
from dice_engine.verify.runners import Runners
from dice_engine.verify.sandbox import Limits
from dice_engine.verify.verdict import KernelUse, Verdict
from dice_engine.verify.worker import NEEDS_HOST, Failed, Worker
from dice_engine.verify.zygote import Zygote

DeviceName = Literal["auto", "cpu", "cuda"]
Baseline = Literal["eager", "compile", "both"]
Isolation = Literal["fork", "warm"]
_KEPT_REFERENCES = 4
_LEAST_RUN_SECONDS = 5.0


class VerifySession:
    """Judges candidates one at a time on one device.

    ``device``: ``auto`` takes a GPU where there is one. ``workdir``: where runners get their private folders (a
    temporary folder by default). ``cache``: verdicts of earlier runs, None for none. ``baseline``: what modules are
    timed against, the reference as it is, under torch.compile, or the better of both. Seconds: ``timeout`` bounds one
    run, ``build_timeout`` one build, ``budget`` the optional trials of one candidate.
    References stay loaded between candidates.

    For many candidates of our own making (data sets, rewards): ``isolation="warm"`` runs kernels on a GPU one after
    another in one process, replaced after a crash, a timeout or 64 candidates; Python candidates and the CPU backend
    always get a process of their own. ``trusted_reference=True`` loads one reference after another into one process.
    ``trusted_candidate=True`` is for candidates that cannot mean to deceive (a data set's own programs): with
    ``isolation="warm"`` modules share processes too, and the checks that only catch cheats are left out; what is
    computed is checked as always. ``threads`` bounds the CPU threads of each runner (0: as torch likes), for
    sessions that share a machine. ``patience``: a run of a candidate may take at most so many times as long as the
    longest of its reference, 5 s in any case and ``timeout`` at most; None: always ``timeout``.
    Use as a context manager.
    """

    def __init__(
        self,
        device: DeviceName = "auto",
        workdir: Path | None = None,
        cache: VerdictCache | None = None,
        baseline: Baseline = "eager",
        isolation: Isolation = "fork",
        trusted_reference: bool = False,
        trusted_candidate: bool = False,
        threads: int = 0,
        timeout: float = 30.0,
        build_timeout: float = 180.0,
        budget: float = 15.0,
        patience: float | None = None,
    ):
        self.cuda = resolve_device(device)
        self.timeout = timeout
        self.build_timeout = build_timeout
        self.budget = budget
        self.patience = patience
        self.cache = cache
        self.baseline: Baseline = baseline
        described = gpu.describe(0) if self.cuda else None
        self._gpu = (described.uuid if described else "") or "0"
        self._place = f"{self._gpu} {described.driver if described else ''}" if self.cuda else "cpu"
        self.device = _device_name(described) if self.cuda else "cpu"
        """The device in words: the GPU's name, or ``cpu``."""
        self._headers: str | None = None
        self._warm_kernels = isolation == "warm" and self.cuda
        self._warm_modules = self._warm_kernels and trusted_candidate
        self._trusted_reference = trusted_reference
        self._trusted_candidate = trusted_candidate
        self._doubtful = False
        self._folder = SessionFolder(workdir)
        self._modules: OrderedDict[str, Reference] = OrderedDict()
        self._kernels: OrderedDict[str, OriginalKernel] = OrderedDict()
        self._runners = Runners(
            self._folder,
            self.cuda,
            Limits(cpu_seconds=int(build_timeout + 20 * timeout), threads=threads),
            warm=self._warm_kernels,
            ahead=self.cuda and not self._warm_modules,
            one_reference=trusted_reference,
        )
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="verify")

    def __enter__(self) -> VerifySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every runner of this session and remove its folder."""
        for entry in (*self._modules.values(), *self._kernels.values()):
            entry.worker.close()
        self._runners.close()
        self._modules.clear()
        self._kernels.clear()
        self._pool.shutdown(wait=True)
        self._folder.remove()

    def abandon(self) -> None:
        """End everything at once, whatever is going on: this process is ending. May be called from any thread."""
        Zygote.end_shared()
        Builds.kill()
        self._folder.remove()

    def verify_kernel(
        self, original: str, candidate: str, kernel: str, plan: Plan | None = None, measure: bool = True
    ) -> Verdict:
        """Judge ``candidate`` (a whole ``.cu`` text) against ``original`` by running ``kernel`` as ``plan`` says."""
        started = time.monotonic()
        plan = plan or kernel_plan(original, kernel)
        if plan.fixture is not None and plan.inputs_source is None:
            plan = Plan.none(f"the text of the fixture {plan.fixture} is not known")
        if not plan.runnable:
            return self._finished(Verdict("no_plan", reason=plan.reason or "no plan"), started)
        if plan.host_source is not None:
            original, candidate = original + plan.host_source, candidate + plan.host_source
        identity = {
            "kind": "kernel",
            "original": original,
            "candidate": candidate,
            "kernel": kernel,
            "plan": repr(plan),
        }
        measure = measure and self.cuda
        judge = self._judge_host if plan.arguments else self._judge_kernel
        return self._cached(
            {**identity, "measure": measure},
            started,
            lambda: judge(original, candidate, kernel, plan, measure),
        )

    def verify_module(
        self,
        reference: str,
        candidate: str,
        reference_class: str = "Model",
        candidate_class: str = "ModelNew",
        measure: bool = True,
        tolerance: Tolerance | None = None,
        keep_state: bool = False,
    ) -> Verdict:
        """Judge ``candidate_class`` of the Python text ``candidate`` against ``reference_class`` of ``reference``.

        ``tolerance``: the user's own, instead of the one that follows from dtypes and scale. ``keep_state``: the
        candidate must have the reference's parameters and buffers, so that it can take its place.
        """
        started = time.monotonic()
        known = static.class_names(reference)
        if reference_class not in known and candidate_class in known:
            reference_class = candidate_class
        identity = {
            "kind": "module",
            "reference": reference,
            "candidate": candidate,
            "classes": [reference_class, candidate_class],
            "baseline": self.baseline,
        }
        if tolerance is not None or keep_state:
            identity["asked"] = [repr(tolerance), keep_state]
        measure = measure and self.cuda
        return self._cached(
            {**identity, "measure": measure},
            started,
            lambda: self._judge_module(
                reference, candidate, reference_class, candidate_class, measure, (), tolerance, keep_state
            ),
        )

    def same_outputs(
        self,
        reference: str,
        candidate: str,
        reference_class: str = "Model",
        candidate_class: str = "ModelNew",
        trials: int = 5,
        tolerance: float = 1e-2,
    ) -> bool:
        """Whether outputs agree on the given inputs under ``trials`` seeds (atol = rtol = ``tolerance``), and nothing
        else: what published evaluations count as correct without a robust check. To be shown next to a verdict, never
        instead of one. Code that is ``unsafe`` is not run, and counts as wrong."""
        finding = static.check_python(candidate, reference, candidate_class, reference_class)
        if finding is not None and finding.verdict == "unsafe":
            return False
        try:
            against = self._reference(reference, reference_class)
            with self._runners.for_candidate(False) as worker:
                trial = ModuleTrial(worker, self.timeout, self.budget, trusted=True)
                trial.load(candidate, candidate_class, None, self.build_timeout, self._headers)
                trial.construct(against, self.build_timeout)
                trial.timeout = self._run_limit(against.longest)
                return trial.agrees(trials, tolerance)
        except Failed as failure:
            if failure.rule == NEEDS_HOST and self._headers is None:
                self._headers = _make_headers(self.cuda)
                return self.same_outputs(
                    reference, candidate, reference_class, candidate_class, trials, tolerance
                )
            return False

    # -- one judgement

    def _judge_kernel(self, original: str, candidate: str, kernel: str, plan: Plan, measure: bool) -> Verdict:
        findings = Findings()
        finding = static.check_kernel(candidate, original, kernel)
        if finding is not None:
            return refused(finding)
        try:
            held = self._pool.submit(self._original, original, plan)
            with self._runners.for_candidate(self._warm_kernels) as worker:
                trial = KernelTrial(worker, self.timeout, self.budget)
                findings = trial.found
                try:
                    trial.load(candidate, plan, self.build_timeout, clock=measure)
                finally:
                    against = held.result()
                trial.timeout = self._run_limit(against.longest)
                trial.run(against)
                verdict = correct(findings, "")
                self._note_usage(verdict, worker)
                if measure:
                    self._runners.settle()
                    timing.time_kernel(verdict, against, worker, self.timeout, self._gpu)
                return verdict
        except Failed as failure:
            return self._failed(failure, findings)

    def _judge_host(self, original: str, candidate: str, kernel: str, plan: Plan, measure: bool) -> Verdict:
        """A kernel behind a function of torch tensors: the function's module is judged, at every size of the plan."""
        finding = static.check_kernel(candidate, original, kernel)
        if finding is not None:
            return refused(finding)
        reference = host_module(original, plan, measure)
        rewritten = host_module(candidate, plan, measure, makers=False)
        others = len(size_sets(plan, measure)) - 1
        seeds = range(FIRST_OTHER_SEED, FIRST_OTHER_SEED + others)
        return self._judge_module(reference, rewritten, CLASS, CLASS, measure, seeds, plan.tolerance)

    def _judge_module(
        self,
        reference: str,
        candidate: str,
        reference_class: str,
        candidate_class: str,
        measure: bool,
        seeds: Sequence[int] = (),
        tolerance: Tolerance | None = None,
        keep_state: bool = False,
    ) -> Verdict:
        """``seeds``: of inputs to judge beside the usual ones."""
        finding = static.check_python(candidate, reference, candidate_class, reference_class)
        if finding is not None:
            return refused(finding)
        findings = Findings()
        try:
            held = self._pool.submit(self._reference, reference, reference_class, tolerance)
            with self._runners.for_candidate(self._warm_modules) as worker:
                trial = ModuleTrial(worker, self.timeout, self.budget, self._trusted_candidate)
                findings = trial.found
                try:
                    trial.load(
                        candidate,
                        candidate_class,
                        reference_class,
                        self.build_timeout,
                        self._headers,
                        measure,
                    )
                finally:
                    against = held.result()
                trial.construct(against, self.build_timeout, keep_state)
                trial.timeout = self._run_limit(against.longest)
                trial.run(cpu=not self.cuda, seeds=seeds)
                kept = ", ".join(sorted(findings.kept))
                verdict = correct(findings, f"torch still computes {kept}" if kept else "")
                self._note_usage(verdict, worker)
                if measure:
                    self._runners.settle()
                    limits = (self.timeout, self.build_timeout)
                    launches = findings.launches
                    timing.time_module(verdict, against, worker, self.baseline, launches, limits, self._gpu)
                return verdict
        except Failed as failure:
            if failure.rule == NEEDS_HOST and self._headers is None:
                self._headers = _make_headers(self.cuda)
                return self._judge_module(
                    reference,
                    candidate,
                    reference_class,
                    candidate_class,
                    measure,
                    seeds,
                    tolerance,
                    keep_state,
                )
            return self._failed(failure, findings)

    def _run_limit(self, longest: float) -> float:
        """Seconds for one run of a candidate whose reference took ``longest``."""
        if self.patience is None:
            return self.timeout
        return min(self.timeout, max(_LEAST_RUN_SECONDS, self.patience * longest))

    def _failed(self, failure: Failed, findings: Findings) -> Verdict:
        self._doubtful = failure.doubtful
        return failed(reference_failed(failure), findings)

    def _reference(self, text: str, class_name: str, tolerance: Tolerance | None = None) -> Reference:
        key = _digest(text, class_name, repr(tolerance))
        found = self._modules.pop(key, None)
        if found is None or found.worker.dead:
            worker = self._runners.for_reference()
            try:
                found = Reference(
                    worker,
                    text,
                    class_name,
                    self.timeout,
                    self.build_timeout,
                    self._headers,
                    self.cuda,
                    tolerance,
                )
            except BaseException:
                worker.close()
                raise
        return self._keep(self._modules, key, found)

    def _original(self, text: str, plan: Plan) -> OriginalKernel:
        key = _digest(text, repr(plan))
        found = self._kernels.pop(key, None)
        if found is None or found.worker.dead:
            worker = self._runners.for_reference()
            try:
                kind = OriginalKernel if plan.fixture is None else FixtureKernel
                found = kind(worker, text, plan, self.timeout, self.build_timeout, not self.cuda, self.cuda)
            except BaseException:
                worker.close()
                raise
        return self._keep(self._kernels, key, found)

    def _keep(self, held: OrderedDict[str, Any], key: str, found: Any) -> Any:
        """``found`` as the latest of the loaded references; the oldest beyond the limit makes room."""
        held[key] = found
        while len(held) > (1 if self._trusted_reference else _KEPT_REFERENCES):
            self._runners.retire(held.popitem(last=False)[1].worker)
        return found

    def _note_usage(self, verdict: Verdict, worker: Worker) -> None:
        if self.cuda:
            with contextlib.suppress(TypeMismatch):
                verdict.note_kernels(structure(list[KernelUse], worker.ask("usage", self.timeout)))

    # -- around it

    def _cached(self, identity: dict[str, Any], started: float, judge: Callable[[], Verdict]) -> Verdict:
        key = verdict_cache.key(**identity, device=self._place) if self.cache is not None else ""
        known = self.cache.get(key) if self.cache is not None else None
        if known is not None:
            return known
        verdict = self._judged(judge)
        if self._doubtful:  # a killed process, a full disk: once more before it counts
            verdict = self._judged(judge)
        verdict = self._finished(verdict, started)
        self._runners.prepare_next()
        if self.cache is not None:
            self.cache.put(key, verdict)
        return verdict

    def _judged(self, judge: Callable[[], Verdict]) -> Verdict:
        self._doubtful = False
        try:
            return judge()
        except Failed as failure:
            return self._failed(failure, Findings())
        except OSError as error:
            self._doubtful = True
            return Verdict("infra_error", reason=f"{type(error).__name__}: {error}")

    def _finished(self, verdict: Verdict, started: float) -> Verdict:
        verdict.device = self.device
        verdict.seconds = round(time.monotonic() - started, 3)
        return verdict


def _make_headers(cuda: bool) -> str:
    """The folder with torch's precompiled headers; made now, in this process, when it is not there (40 s)."""
    folder = Path(platformdirs.user_cache_dir("dice")) / "headers"
    try:
        host.Toolchain.find(cpu=not cuda).prepare(folder)
    except InfraError as error:
        raise Failed("infra_error", str(error)) from error
    return str(folder)


def _device_name(described: gpu.GpuDescription | None) -> str:
    name = described.name if described else torch.cuda.get_device_name(0)
    return name.removeprefix("NVIDIA ")


def resolve_device(device: DeviceName) -> bool:
    """Whether to use CUDA. Raises Failed(infra_error) when it is asked for and missing."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise Failed("infra_error", "no CUDA device: check nvidia-smi, or use --device cpu")
    return available if device == "auto" else device == "cuda"


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=20).hexdigest()
