"""``dice bench verify --field``: our harness and the usual one on the same modules in one run.

Ours: latency of one warm session, then many sessions at once, each module against its own reference, without
clocks. The usual way (``baseline``): one module alone, then a sample of them at once; it takes about a minute for
each, so its throughput is that of one wave of the sample.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.bench.modules import ModulePair, module_pairs
from dice_engine.verify import sandbox

if TYPE_CHECKING:
    from dice_engine.verify.session import DeviceName

TARGETS = {"latency_s": 2.0, "per_second": 8.0, "times_faster": 50.0}
"""One module from source to verdict, modules a second, and that against the baseline: on an H200 with 16 cores."""
_LATENCY_PAIRS = 10
_BASELINE_LIMIT_S = 600.0


def measure(device: DeviceName, count: int, workers: int, rounds: int, sample: int) -> dict[str, Any]:
    """The whole comparison as JSON, of the first ``count`` pairs.

    Ours judges every pair ``rounds`` times with ``workers`` sessions. The baseline judges ``sample`` of them, none
    where there is no GPU: torch builds these extensions for CUDA only.
    """
    pairs = module_pairs()[:count]
    report: dict[str, Any] = {
        "modules": len(pairs),
        "workers": workers,
        "targets": TARGETS,
        "cores": os.cpu_count(),
    }
    report["ours"] = {
        **_latency(device, pairs[:: -(-len(pairs) // _LATENCY_PAIRS)]),
        **_throughput(device, pairs, workers, rounds),
    }
    if sample and report["ours"]["device"] != "cpu":
        report["baseline"] = _baseline(pairs[:: max(1, len(pairs) // sample)][:sample])
        ours, theirs = report["ours"], report["baseline"]
        if theirs["per_second"]:
            report["latency_ratio"] = round(theirs["latency_s"] / ours["latency_s"], 1)
            report["throughput_ratio"] = round(ours["per_second"] / theirs["per_second"], 1)
    return report


def _latency(device: DeviceName, pairs: Sequence[ModulePair]) -> dict[str, Any]:
    """Seconds of single verdicts in one session that has judged before; references are new."""
    from dice_engine.verify.interrupt import ends_at_once
    from dice_engine.verify.session import VerifySession

    spans = []
    with VerifySession(device) as session, ends_at_once(session.abandon):
        session.verify_module(pairs[0].reference, _fresh(pairs[0], "warm"), measure=False)
        for pair in pairs:
            begun = time.perf_counter()
            session.verify_module(pair.reference, _fresh(pair, "latency"), measure=False)
            spans.append(time.perf_counter() - begun)
        name = session.device
    return {
        "device": name,
        "latency_s": round(statistics.median(spans), 3),
        "latency_max_s": round(max(spans), 3),
    }


def _throughput(device: DeviceName, pairs: Sequence[ModulePair], workers: int, rounds: int) -> dict[str, Any]:
    """Verdicts a second of ``workers`` sessions, from the first question to the last answer."""
    context = multiprocessing.get_context("spawn")
    questions: Any = context.Queue()
    answers: Any = context.Queue()
    children = [
        context.Process(target=_serve, args=(device, number, questions, answers), daemon=False)
        for number in range(workers)
    ]
    for child in children:
        child.start()
    try:
        for _ in children:
            answers.get(timeout=300)  # each has judged one module: its session is warm
        begun = time.perf_counter()
        work = [(pair, f"round {number}") for number in range(rounds) for pair in pairs]
        for question in work:
            questions.put(question)
        verdicts = Counter(answers.get(timeout=600) for _ in work)
        seconds = time.perf_counter() - begun
    finally:
        for _ in children:
            questions.put(None)
        for child in children:
            child.join(30)
            if child.is_alive():
                child.kill()
    return {
        "verdicts": dict(verdicts),
        "judged": len(work),
        "wall_s": round(seconds, 3),
        "per_second": round(len(work) / seconds, 3),
    }


def _serve(device: DeviceName, number: int, questions: Any, answers: Any) -> None:
    """One worker: a session that judges until it is told to stop, or nobody is left to ask."""
    parent = multiprocessing.parent_process()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sandbox.die_with_parent(parent.pid if parent and parent.pid else 0)
    import torch

    torch.set_num_threads(1)
    from dice_engine.verify.interrupt import ends_at_once
    from dice_engine.verify.session import VerifySession

    first = module_pairs()[0]
    with VerifySession(device, trusted_reference=True, threads=1) as session, ends_at_once(session.abandon):
        found = session.verify_module(first.reference, _fresh(first, f"worker {number}"), measure=False)
        answers.put(found.verdict)
        while (question := questions.get()) is not None:
            pair, mark = question
            found = session.verify_module(pair.reference, _fresh(pair, mark), measure=False)
            answers.put(found.verdict if found.rule is None else f"{found.verdict} ({found.rule})")


def _fresh(pair: ModulePair, mark: str) -> str:
    """The candidate's text as one that nobody has seen."""
    return f"{pair.candidate}\n# {mark}\n"


def _baseline(pairs: Sequence[ModulePair]) -> dict[str, Any]:
    """One module alone, then all of the sample at once, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="dice-bench-") as folder:
        alone = _baseline_one(pairs[0], Path(folder))
        begun = time.perf_counter()
        with ThreadPoolExecutor(len(pairs)) as pool:
            found = list(pool.map(lambda pair: _baseline_one(pair, Path(folder)), pairs))
        seconds = time.perf_counter() - begun
    done = [one for one in found if one.get("correct")]
    return {
        "sampled": len(pairs),
        "correct": len(done),
        "latency_s": alone["seconds"],
        "build_s": alone.get("build_seconds"),
        "wall_s": round(seconds, 3),
        "per_second": round(len(done) / seconds, 4),
        "failures": [one["error"] for one in (alone, *found) if "error" in one][:3],
    }


def _baseline_one(pair: ModulePair, folder: Path) -> dict[str, Any]:
    """What the baseline says, and the seconds of its whole process."""
    reference, candidate = folder / f"{pair.name}_reference.py", folder / f"{pair.name}.py"
    reference.write_text(pair.reference)
    candidate.write_text(pair.candidate)
    command = [
        sys.executable,
        "-m",
        "dice_engine.bench.baseline",
        str(reference),
        str(candidate),
    ]
    begun = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BASELINE_LIMIT_S, check=False)
        said = (
            {**json.loads(done.stdout.splitlines()[-1])}
            if done.stdout.strip()
            else {"error": done.stderr[-300:]}
        )
    except (subprocess.TimeoutExpired, ValueError) as error:
        said = {"error": str(error)[:300]}
    return {**said, "seconds": round(time.perf_counter() - begun, 3)}


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    ours, targets = report["ours"], report["targets"]
    said = [
        f"{report['modules']} modules on {ours['device']}, {report['cores']} cores; no clocks, no cache",
        f"ours: one verdict {ours['latency_s']:.2f} s (median, longest {ours['latency_max_s']:.2f} s; "
        f"target {targets['latency_s']:g} s)",
        f"ours: {ours['per_second']:.2f} modules/s, {ours['judged']} by {report['workers']} sessions in "
        f"{ours['wall_s']:.1f} s (target {targets['per_second']:g}); "
        + ", ".join(f"{n} {v}" for v, n in ours["verdicts"].items()),
    ]
    theirs = report.get("baseline")
    if theirs is not None:
        said.append(
            f"load_inline in a fresh process: one verdict {theirs['latency_s']:.1f} s alone; {theirs['correct']} of "
            f"{theirs['sampled']} sampled modules at once in {theirs['wall_s']:.1f} s, "
            f"{theirs['per_second']:.3f} modules/s"
        )
        said += [f"  failed: {words.strip()}" for words in theirs["failures"]]
    if "throughput_ratio" in report:
        said.append(
            f"ratios: latency {report['latency_ratio']:.0f}x, throughput {report['throughput_ratio']:.0f}x "
            f"(target {targets['times_faster']:g}x)"
        )
    return said
