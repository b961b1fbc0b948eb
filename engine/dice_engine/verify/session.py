"""The judge: verdicts on candidates against their references.

A ``VerifySession`` lives in the caller's process. It keeps inputs, expected outputs, comparison and the clock's
verdict; references and candidates run in processes of their own (``worker``), which only ever see inputs.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch

from dice_engine.source import cuda
from dice_engine.source.plan import Plan
from dice_engine.source.plans import kernel_plan
from dice_engine.verify import cache as verdict_cache
from dice_engine.verify.cache import VerdictCache
from dice_engine.verify.judge import static
from dice_engine.verify.judge.kernel import KernelTrial, OriginalKernel, plan_message
from dice_engine.verify.judge.module import Findings, ModuleTrial
from dice_engine.verify.judge.reference import Reference
from dice_engine.verify.judge.static import Finding
from dice_engine.verify.sandbox import Limits
from dice_engine.verify.verdict import Verdict
from dice_engine.verify.worker import Failed, Worker
from dice_engine.verify.zygote import Zygote, ZygoteError

DeviceName = Literal["auto", "cpu", "cuda"]
_KEPT_REFERENCES = 4


class VerifySession:
    """Judges candidates one at a time on one device.

    ``device``: ``auto`` takes a GPU where there is one. ``workdir``: where runners get their private folders (a
    temporary folder by default). ``cache``: verdicts of earlier runs, None for none. ``timeout`` and
    ``build_timeout`` in seconds bound one run and one build; ``budget`` the optional trials of one candidate.
    References stay loaded between candidates. Use as a context manager.
    """

    def __init__(
        self,
        device: DeviceName = "auto",
        workdir: Path | None = None,
        cache: VerdictCache | None = None,
        timeout: float = 30.0,
        build_timeout: float = 180.0,
        budget: float = 15.0,
    ):
        self.cuda = resolve_device(device)
        self.timeout = timeout
        self.build_timeout = build_timeout
        self.budget = budget
        self.cache = cache
        self._folder = Path(tempfile.mkdtemp(prefix="dice-verify-", dir=workdir))
        self._modules: OrderedDict[str, Reference] = OrderedDict()
        self._kernels: OrderedDict[str, OriginalKernel] = OrderedDict()
        with contextlib.suppress(ZygoteError):
            Zygote.shared()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="verify")

    def __enter__(self) -> VerifySession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every runner of this session and remove its folder."""
        for held in (*self._modules.values(), *self._kernels.values()):
            held.worker.close()
        self._modules.clear()
        self._kernels.clear()
        self._pool.shutdown(wait=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def device(self) -> str:
        """The device in words: the GPU's name, or ``cpu``."""
        return torch.cuda.get_device_name(0).removeprefix("NVIDIA ") if self.cuda else "cpu"

    def verify_kernel(
        self, original: str, candidate: str, kernel: str, plan: Plan | None = None, measure: bool = True
    ) -> Verdict:
        """Judge ``candidate`` (a whole ``.cu`` text) against ``original`` by running ``kernel`` as ``plan`` says."""
        started = time.monotonic()
        plan = plan or kernel_plan(original, kernel)
        if not plan.runnable:
            return self._finished(Verdict("no_plan", reason=plan.reason or "no plan"), started)
        identity = {
            "kind": "kernel",
            "original": original,
            "candidate": candidate,
            "plan": plan_message(plan),
        }
        return self._cached(
            identity, measure, started, lambda: self._judge_kernel(original, candidate, kernel, plan)
        )

    def verify_module(
        self,
        reference: str,
        candidate: str,
        reference_class: str = "Model",
        candidate_class: str = "ModelNew",
        measure: bool = True,
    ) -> Verdict:
        """Judge ``candidate_class`` of the Python text ``candidate`` against ``reference_class`` of ``reference``."""
        started = time.monotonic()
        known = class_names(reference)
        if reference_class not in known and candidate_class in known:
            reference_class = candidate_class
        identity = {
            "kind": "module",
            "reference": reference,
            "candidate": candidate,
            "classes": [reference_class, candidate_class],
        }
        return self._cached(
            identity,
            measure,
            started,
            lambda: self._judge_module(reference, candidate, reference_class, candidate_class),
        )

    # -- one judgement

    def _judge_kernel(self, original: str, candidate: str, kernel: str, plan: Plan) -> Verdict:
        findings = Findings()
        finding = static.check_cpp(candidate, original) or _check_body(candidate, kernel)
        if finding is not None:
            return _refused(finding)
        try:
            held = self._pool.submit(self._original, original, plan)
            with self._worker() as worker:
                trial = KernelTrial(worker, self.timeout, self.budget)
                findings = trial.found
                try:
                    trial.load(candidate, plan, self.build_timeout)
                finally:
                    against = held.result()
                trial.run(against)
        except Failed as failure:
            return _verdict(failure, findings)
        return _correct(findings, "")

    def _judge_module(
        self, reference: str, candidate: str, reference_class: str, candidate_class: str
    ) -> Verdict:
        findings = Findings()
        finding = static.check_python(candidate, reference, candidate_class, reference_class)
        if finding is not None:
            return _refused(finding)
        try:
            held = self._pool.submit(self._reference, reference, reference_class)
            with self._worker() as worker:
                trial = ModuleTrial(worker, self.timeout, self.budget)
                findings = trial.found
                try:
                    trial.load(candidate, candidate_class, reference_class, self.build_timeout)
                finally:
                    against = held.result()
                trial.construct(against, self.build_timeout)
                trial.run(cpu=not self.cuda)
        except Failed as failure:
            return _verdict(failure, findings)
        kept = ", ".join(sorted(findings.kept))
        return _correct(findings, f"torch still computes {kept}" if kept else "")

    def _reference(self, text: str, class_name: str) -> Reference:
        key = _digest(text, class_name)
        found = self._modules.pop(key, None)
        if found is None or found.worker.dead:
            worker = self._worker()
            try:
                found = Reference(worker, text, class_name, self.timeout, self.build_timeout)
            except BaseException as error:
                worker.close()
                raise _reference_failed(error) from error
        self._modules[key] = found
        while len(self._modules) > _KEPT_REFERENCES:
            self._modules.popitem(last=False)[1].worker.close()
        return found

    def _original(self, text: str, plan: Plan) -> OriginalKernel:
        key = _digest(text, json.dumps(plan_message(plan), sort_keys=True))
        found = self._kernels.pop(key, None)
        if found is None or found.worker.dead:
            worker = self._worker()
            try:
                found = OriginalKernel(
                    worker, text, plan, self.timeout, self.build_timeout, cpu=not self.cuda
                )
            except BaseException as error:
                worker.close()
                raise _reference_failed(error) from error
        self._kernels[key] = found
        while len(self._kernels) > _KEPT_REFERENCES:
            self._kernels.popitem(last=False)[1].worker.close()
        return found

    def _worker(self) -> Worker:
        try:
            zygote = Zygote.shared()
        except ZygoteError as error:
            raise Failed("infra_error", str(error)) from error
        cpu_seconds = int(self.build_timeout + 20 * self.timeout)
        return Worker(zygote, self._folder, self.cuda, Limits(cpu_seconds=cpu_seconds))

    # -- around it

    def _cached(self, identity: dict[str, Any], measure: bool, started: float, judge: Any) -> Verdict:
        place = verdict_cache.gpu_identity(0) if self.cuda else "cpu"
        key = verdict_cache.key(**identity, device=place, measure=measure and self.cuda)
        known = self.cache.get(key) if self.cache is not None else None
        if known is not None:
            return known
        try:
            verdict = judge()
        except Failed as failure:
            verdict = _verdict(failure, Findings())
        except OSError as error:
            verdict = Verdict("infra_error", reason=f"{type(error).__name__}: {error}")
        verdict = self._finished(verdict, started)
        if self.cache is not None:
            self.cache.put(key, verdict)
        return verdict

    def _finished(self, verdict: Verdict, started: float) -> Verdict:
        verdict.device = self.device
        verdict.seconds = round(time.monotonic() - started, 3)
        return verdict


def resolve_device(device: DeviceName) -> bool:
    """Whether to use CUDA. Raises Failed(infra_error) when it is asked for and missing."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise Failed("infra_error", "no CUDA device: check nvidia-smi, or use --device cpu")
    return available if device == "auto" else device == "cuda"


def class_names(text: str) -> set[str]:
    """Names of the classes at the top level of a Python text; empty when it does not parse."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        return {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    return set()


def _check_body(text: str, kernel: str) -> Finding | None:
    span = next((span for span in cuda.find_kernels(text) if span.name == kernel), None)
    if span is None:
        return None
    return static.check_body(text.encode()[span.body_start : span.body_end].decode(errors="replace"), kernel)


def _reference_failed(error: BaseException) -> BaseException:
    """A reference that cannot be run is a missing plan, not a fault of the candidate."""
    if not isinstance(error, Failed) or error.verdict in ("no_plan", "infra_error"):
        return error
    return Failed("no_plan", f"the reference does not run: {error.reason}", log=error.log)


def _refused(finding: Finding) -> Verdict:
    return Verdict(finding.verdict, rule=finding.rule, reason=finding.reason)


def _verdict(failure: Failed, findings: Findings) -> Verdict:
    verdict = _correct(findings, failure.reason)
    verdict.verdict, verdict.rule = failure.verdict, failure.rule
    if failure.log and not verdict.build.log:
        verdict.build.log = failure.log
    return verdict


def _correct(findings: Findings, reason: str) -> Verdict:
    compared = findings.trials > 0 or findings.max_abs > 0
    return Verdict(
        "correct_unmeasured",
        reason=reason,
        max_abs_err=findings.max_abs if compared else None,
        max_rel_err=findings.max_rel if compared else None,
        trials=findings.trials,
        build=findings.build,
    )


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=20).hexdigest()
