"""Checks rows with the project's own verifier, in worker processes that keep their sessions warm."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from dice_engine.verify.verdict import CORRECT, Verdict

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

Row = dict[str, Any]
Make = Callable[[int], Row]

_CHUNK = 4
"""Rows that a worker makes and checks at a time."""
_AHEAD = 4
"""Chunks in flight for each worker, so that none waits for the slowest."""

_session: Any = None


def verify_row(session: Any, row: Row, core: str | None = None, measure: bool = False) -> Verdict:
    """The verdict on ``core`` (the row's own by default) in the place of the row's core.

    ``session`` is a ``dice_engine.verify.session.VerifySession``. Python programs are compared with the PyTorch
    module; a kernel that stands in a string runs in the file around it (the row's ``around``).
    """
    if row["kind"] == "kernel_body" and "around" not in row:
        original, program = row.get("original") or _existing(row), _program(row, core)
        return session.verify_kernel(original, program, row["kernel"], measure=measure)
    reference, name, program = _modules(row, core)
    return session.verify_module(reference, program, reference_class=name, measure=measure)


def same_outputs(session: Any, row: Row, core: str) -> bool:
    """Whether the outputs with ``core`` agree with the PyTorch module's and nothing else is asked; False for rows
    without a module."""
    if row["kind"] == "kernel_body" and "around" not in row:
        return False
    reference, name, program = _modules(row, core)
    return session.same_outputs(reference, program, reference_class=name)


def _modules(row: Row, core: str | None) -> tuple[str, str, str]:
    """The reference's text, the name of its class, and the candidate's text."""
    program = _program(row, core)
    reference, name = row.get("pytorch", row["reference"]), row.get("class_name", "Model")
    if "around" in row:
        before, after = row["around"]
        program = before + program + after
    elif row["kind"] == "load_inline_core" and f"class {name}(" not in reference:
        # Nothing but the core that stood there is known: the same class, before and after.
        reference, name = _existing(row), "ModelNew"
    return reference, name, program


def _program(row: Row, core: str | None) -> str:
    return row["prefix"] + (row["core"] if core is None else core) + row["suffix"]


def _existing(row: Row) -> str:
    return row["prefix"] + row["reference"] + row["suffix"]


def measurements(verdict: Verdict) -> Row:
    """What a row says about how it was verified."""
    return {
        "verdict": verdict.to_json(),
        "device": verdict.device,
        "measurements": {
            "reference_ms": verdict.reference_ms,
            "candidate_ms": verdict.candidate_ms,
            "speedup": verdict.speedup,
            "speedup_low": verdict.speedup_low,
            "speedup_high": verdict.speedup_high,
        },
    }


def is_correct(row: Row) -> bool:
    return bool(row.get("verdict")) and row["verdict"]["verdict"] in CORRECT


def verified(
    make: Make, indices: range, device: str, workers: int, stopped: Callable[[], bool]
) -> Iterator[Row]:
    """The rows of ``indices`` with their verdicts, in order, until ``stopped()``.

    ``make`` (picklable) writes the row of an index. After a stop, chunks that have begun are still given out.
    """
    starts = iter(indices[i : i + _CHUNK] for i in range(0, len(indices), _CHUNK))
    threads = max(1, (os.cpu_count() or 1) // workers)
    running: deque[Future[list[Row]]] = deque()
    opened = multiprocessing.Value("i", 0)
    with ProcessPoolExecutor(workers, initializer=_open, initargs=(device, threads, opened)) as pool:
        try:
            running.extend(pool.submit(_check, make, chunk) for chunk in islice(starts, workers * _AHEAD))
            while running:
                if stopped():
                    for future in reversed(running):
                        future.cancel()
                    running = deque(future for future in running if not future.cancelled())
                    starts = iter(())
                if not running:
                    return
                yield from running.popleft().result()
                running.extend(pool.submit(_check, make, chunk) for chunk in islice(starts, 1))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def use_gpu(worker: int) -> None:
    """Leave this process one of the GPUs that it sees, in turn. To be called before CUDA is initialised."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]


def _open(device: str, threads: int, opened: Synchronized[int]) -> None:
    import torch
    from dice_engine.verify.session import VerifySession

    global _session
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    torch.set_num_threads(threads)
    with opened.get_lock():
        worker = opened.value
        opened.value += 1
    if device != "cpu":
        use_gpu(worker)
    _session = VerifySession(
        device,  # type: ignore[arg-type]
        isolation="warm",
        trusted_reference=True,
        trusted_candidate=True,
        threads=threads,
        budget=0.0,
    )
    Finalize(None, _session.close, exitpriority=10)  # workers of a pool end without atexit


def _check(make: Make, indices: range) -> list[Row]:
    rows = [make(index) for index in indices]
    for row in rows:
        if "verdict" not in row:  # a task that the teacher could not write has one already
            row |= measurements(verify_row(_session, row))
    return rows
