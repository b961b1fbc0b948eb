"""The judge's stopwatch: reference and candidate in turns on one GPU, each in its own process.

The runners read their clocks, the judge decides whose turn it is, which outputs it wants to see, and what the times
mean. Nobody else of this machine's dice processes times on that GPU meanwhile.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from dice_engine.verify import bench, compare, gpu
from dice_engine.verify.build.interface import InfraError
from dice_engine.verify.compare import Check
from dice_engine.verify.judge.kernel import OriginalKernel
from dice_engine.verify.judge.reference import Reference
from dice_engine.verify.verdict import GpuState, Verdict
from dice_engine.verify.worker import Failed, Worker


@dataclass(frozen=True)
class Traffic:
    """Bytes that one call must move: those that it ``written`` at least, and those with what it reads."""

    written: int
    moved: int


@dataclass(frozen=True)
class Measured:
    """What a race gave: the ratio with its interval, medians in milliseconds, and bytes a second of a copy."""

    interval: bench.RatioInterval
    reference_ms: float
    candidate_ms: float
    traffic: Traffic
    bandwidth: float


_SECONDS = 4.0
"""What the timed calls of one comparison may take together."""
_LEAST, _MOST, _ROUNDS = 12, 60, 20
_LOCK_SECONDS = 600.0
_L2 = 64 << 20
"""Bytes that a cache may hold back from memory while the clock runs."""


@dataclass
class Side:
    """One process under the clock."""

    worker: Worker
    name: bench.Side
    launches: int
    """Kernels that one call launches, at least."""
    ms: list[float]
    escaped: int = 0
    inconsistent: int = 0


CheckOutputs = Callable[[int, Any], Check]
"""Compares outputs of the candidate for an input set (its number) with the reference's."""


def race(
    reference: Worker,
    candidate: Worker,
    sets: int,
    check: CheckOutputs,
    launches: int,
    traffic: Traffic,
    timeout: float,
) -> Measured:
    """Time both sides in turns.

    Both have prepared the same ``sets`` input sets; a call of the candidate launches at least ``launches`` kernels.
    Raises Failed: ``deceptive`` when outputs under the clock are
    wrong or work escapes the clock, ``infra_error`` when the times are impossible.
    """
    sides = {
        "reference": Side(reference, "reference", 0, []),
        "candidate": Side(candidate, "candidate", launches, []),
    }
    first = {name: _block(side, 0, 5, True, check, timeout, warm=True) for name, side in sides.items()}
    for side in sides.values():
        side.ms.clear()
    slow = sum(statistics.median(times) for times in first.values()) / 1e3 + 2e-3
    wanted = int(min(_MOST, max(_LEAST, _SECONDS / slow)))
    each = max(1, wanted // _ROUNDS)
    rounds = -(-wanted // each)
    picked = {random.randrange(rounds), rounds - 1}
    for number, name in enumerate(bench.schedule(rounds, seed=random.randrange(1 << 30))):
        turn = number // 2
        _block(sides[name], turn % sets, each, turn in picked, check, timeout)
    ours, theirs = sides["reference"], sides["candidate"]
    if theirs.inconsistent > rounds // 2:
        raise Failed("deceptive", "its calls last longer than the GPU's clock says", "tampering")
    if theirs.escaped > rounds // 2 and not ours.escaped > rounds // 2:
        raise Failed("deceptive", "its work goes on after the timed stream is done", "stream_escape")
    bandwidth = float(reference.ask("bandwidth", timeout))
    impossible = partial(
        bench.below_roofline, bytes_moved=traffic.written, bandwidth=bandwidth, cache_bytes=_L2
    )
    if impossible(theirs.ms) and not impossible(ours.ms):
        raise Failed(
            "infra_error", "the measured time is too short for the bytes written: the clock is wrong"
        )
    interval = bench.ratio_interval(ours.ms, theirs.ms, turn=each)
    return Measured(interval, statistics.median(ours.ms), statistics.median(theirs.ms), traffic, bandwidth)


def _block(
    side: Side, which: int, calls: int, look: bool, check: CheckOutputs, timeout: float, warm: bool = False
) -> list[float]:
    result = side.worker.ask("time", timeout, which=which, calls=calls, outputs=look, warm=warm)
    times = [float(ms) for ms in result["ms"]]
    if len(times) != calls or not all(0 < ms < 1e7 for ms in times):
        raise Failed("infra_error", "the clock gave no positive times")
    side.ms += times
    side.escaped += bool(result["escaped"])
    side.inconsistent += not result["consistent"]
    if int(result["launches"]) < calls * side.launches:
        raise Failed(
            "deceptive", "under the clock it launches fewer kernels than when it is checked", "caching"
        )
    if look and side.name == "candidate":
        found = check(which, result["outputs"])
        if not found.ok:
            raise Failed("deceptive", f"under the clock its outputs are wrong: {found.reason}", "caching")
    return times


def time_kernel(
    verdict: Verdict, original: OriginalKernel, candidate: Worker, timeout: float, device_key: str
) -> None:
    """Add times on the plan's measuring size to the verdict on a correct kernel."""
    case = original.timing_case()
    if case is None:
        return

    def measure() -> Measured:
        for worker in (original.worker, candidate):
            worker.ask("prepare_kernel_timing", timeout, case=case.message)
        written = sum(tensor.nbytes for tensor in case.expected.values())
        roles = {buffer.name: buffer.role for buffer in original.plan.buffers}
        read = sum(
            contents.nbytes
            for name, contents in case.message["buffers"].items()
            if roles[name] in ("in", "inout")
        )
        return race(
            original.worker,
            candidate,
            1,
            lambda _, outputs: compare.compare(case.expected, outputs, case.limits, name=""),
            1,
            Traffic(written, written + read),
            timeout,
        )

    _timed(verdict, [("", measure)], device_key)


def time_module(
    verdict: Verdict,
    reference: Reference,
    candidate: Worker,
    baseline: Literal["eager", "compile", "both"],
    launches: int,
    limits: tuple[float, float],
    device_key: str,
) -> None:
    """Add times on the given inputs to the verdict on a correct module.

    ``launches``: kernels that a checked pass launched. ``limits``: seconds for a run and a build.
    """
    timeout, build_timeout = limits
    cases = reference.timing_cases()

    def measure(compiled: bool) -> Measured:
        reference.prepare_timing(build_timeout, compiled)
        sets = [case.inputs for case in cases]
        candidate.ask("prepare_module_timing", timeout, input_sets=sets, compiled=False)
        written = sum(tensor.nbytes for _, tensor in compare.tensors(cases[0].expected))
        read = sum(tensor.nbytes for _, tensor in compare.tensors(cases[0].inputs)) + reference.state_bytes
        return race(
            reference.worker,
            candidate,
            len(cases),
            lambda which, outputs: compare.compare(cases[which].expected, outputs, cases[which].limits),
            launches,
            Traffic(written, written + read),
            build_timeout if compiled else timeout,
        )

    named = {"eager": False, "torch.compile": True}
    wanted = {"eager": ["eager"], "compile": ["torch.compile"], "both": list(named)}[baseline]
    races = [("" if baseline == "eager" else name, partial(measure, named[name])) for name in wanted]
    _timed(verdict, races, device_key)


def _timed(verdict: Verdict, races: list[tuple[str, Callable[[], Measured]]], device_key: str) -> None:
    """Measure alone on the GPU; of several baselines (by name) the hardest to beat counts.

    The verdict stays as it is, with the reason, when the GPU is not free.
    """
    try:
        with gpu.gpu_lock(device_key, timeout=_LOCK_SECONDS):
            busy = gpu.wait_until_idle(timeout=10.0)
            if busy is not None:
                verdict.reason = _join(verdict.reason, f"not timed: {busy}")
                return
            measured = [(name, race()) for name, race in races]
            verdict.gpu = _gpu_state()
    except InfraError as error:
        verdict.reason = _join(verdict.reason, f"not timed: {error}")
        return
    best = min((found for _, found in measured), key=lambda found: found.interval.ratio)
    verdict.verdict = "verified" if bench.is_gain(best.interval) else "no_gain"
    verdict.reference_ms, verdict.candidate_ms = best.reference_ms, best.candidate_ms
    verdict.speedup, verdict.speedup_low, verdict.speedup_high = best.interval
    verdict.note_traffic(best.traffic.moved, best.bandwidth)
    verdict.speedups = {name: found.interval.ratio for name, found in measured if name}
    against = ", ".join(f"{ratio:.2f}x against {name}" for name, ratio in verdict.speedups.items())
    verdict.reason = _join(verdict.reason, against)


def _gpu_state() -> GpuState | None:
    """Clocks while they are still what they were under the clock, None without NVML."""
    seen = gpu.describe(0)
    if seen is None:
        return None
    return GpuState(seen.name, seen.driver, seen.sm_mhz, seen.memory_mhz, list(seen.throttle))


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
