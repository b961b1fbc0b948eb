"""The decode worker: one thread that owns the loaded models and decodes the requests of all clients.

Requests for one checkpoint are decoded together, whoever sent them; each step of the thread is one pass of the model
whose most urgent request is the most urgent of all. torch is imported in the thread, when the first request comes.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import dice_engine
from dice_engine import wire
from dice_engine.devices import without_doubt
from dice_engine.prompts import CoreRequest, PromptError

if TYPE_CHECKING:
    from dice_engine.engine import BlockProgress, Candidate, Engine, Task

log = logging.getLogger(__name__)

MAX_WAITING = 64
MAX_MODELS = 2

Emit = Callable[[wire.Event], None]
EngineKey: TypeAlias = tuple[str, str, tuple[tuple[str, int], ...]]
"""Folder, device, and the files with their times."""


@dataclass
class DecodeJob:
    """A generate request in the queue. ``emit`` is called in the decode thread."""

    request: wire.GenerateRequest
    emit: Emit
    order: int
    cancelled: bool = False
    engine: Engine | None = field(default=None, repr=False)
    task: Task | None = field(default=None, repr=False)
    """What the engine does for it; None: not begun."""


class QueueFull(Exception):
    """Too many requests wait already."""


class DecodeQueue:
    """``gpu_memory``: the share of a GPU that models may use, see ``Engine.load``."""

    def __init__(self, idle_seconds: float, gpu_memory: float | None = None) -> None:
        self._idle_seconds, self._gpu_memory = idle_seconds, gpu_memory
        self._jobs: list[DecodeJob] = []
        self._changed = threading.Condition()
        self._orders = itertools.count()
        self._engines: dict[EngineKey, Engine] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="decode", daemon=True)
        self._thread.start()
        self.device: str | None = None
        """Name of the device of the model used last; None before the first."""
        self.models: list[str] = []
        self.gpu_bytes = 0
        """GPU memory that models, keys and values hold, as of the last pass."""

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def running(self) -> int:
        return sum(job.task is not None for job in self._jobs)

    def submit(self, request: wire.GenerateRequest, emit: Emit) -> DecodeJob:
        """Queue a request; its last event is ``Done`` or ``Error``. Raises :class:`QueueFull`."""
        with self._changed:
            if len(self._jobs) >= MAX_WAITING:
                raise QueueFull(f"{MAX_WAITING} requests wait already; try again later")
            job = DecodeJob(request, emit, next(self._orders))
            self._jobs.append(job)
            self._changed.notify()
        return job

    def cancel(self, job: DecodeJob) -> None:
        """End a job at its next block at the latest."""
        with self._changed:
            job.cancelled = True
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            for job in self._jobs:
                job.cancelled = True
            self._changed.notify()
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closing:
                    if (
                        not self._changed.wait(self._idle_seconds if self._engines else None)
                        and not self._jobs
                    ):
                        self._unload()
                if self._closing and not self._jobs:
                    return
                jobs = sorted(self._jobs, key=lambda job: (-job.request.priority, job.order))
            self._round(jobs)

    def _round(self, jobs: list[DecodeJob]) -> None:
        """End what is cancelled, begin what is new, and run one pass for the most urgent job."""
        for job in jobs:
            if job.cancelled:
                self._end(job, wire.Done(job.request.id, cancelled=True))
            elif job.task is None:
                self._begin(job)
        engine = next((job.engine for job in jobs if job.task is not None), None)
        if engine is None:
            return
        try:
            engine.step()
        except Exception as error:
            # Nothing is known of the state of any request of this engine: each client is told, the engine goes.
            for job in [job for job in jobs if job.engine is engine and job.task is not None]:
                self._end(job, wire.Error(job.request.id, self._explain(error)))
            self._drop(engine)
            return
        self.gpu_bytes = engine.gpu_bytes
        for job in jobs:
            if job.engine is engine and job.task is not None:
                self._tell(job, job.task)

    def _begin(self, job: DecodeJob) -> None:
        request = job.request
        try:
            job.engine = self._engine(request.checkpoint, without_doubt(request.device))
            job.task = job.engine.submit(
                CoreRequest(request.kind, request.prefix, request.suffix, request.reference, request.begin),
                request.n,
                request.seed,
                temperature=request.temperature,
                max_new_tokens=request.max_new_tokens,
                priority=request.priority,
            )
        except Exception as error:
            self._end(job, wire.Error(request.id, self._explain(error)))

    def _tell(self, job: DecodeJob, task: Task) -> None:
        while task.events:
            job.emit(_event(job.request, task.events.popleft()))
        if task.error is not None:
            self._end(job, wire.Error(job.request.id, self._explain(task.error)))
        elif task.done:
            self._end(job, wire.Done(job.request.id))

    def _end(self, job: DecodeJob, last: wire.Done | wire.Error) -> None:
        if job.task is not None and job.engine is not None:
            job.engine.cancel(job.task)  # frees its pages now
        job.task = None
        with self._changed:
            self._jobs.remove(job)
        job.emit(last)

    def _drop(self, engine: Engine) -> None:
        self._engines = {key: kept for key, kept in self._engines.items() if kept is not engine}
        self.models = [key[0] for key in self._engines]

    def _engine(self, checkpoint: str | None, device: str) -> Engine:
        from dice_engine.engine import Engine
        from dice_engine.loading import checkpoint_folder
        from dice_engine.model.config import CheckpointError

        folder = checkpoint_folder(checkpoint or dice_engine.NANO)
        # The times are in the key: a checkpoint that was written anew is loaded anew.
        key = (str(folder), device, _times(folder))
        engine = self._engines.pop(key, None)
        if engine is None:
            older = next((k for k in self._engines if k[:2] == key[:2]), None)
            start = time.monotonic()
            try:
                self._make_room(older)
                engine = Engine.load(folder, device, gpu_memory=self._gpu_memory)
                log.info("loaded %s on %s in %.1f s", folder, engine.device_name, time.monotonic() - start)
                if older is not None:
                    self._engines.pop(older, None)
            except CheckpointError as error:
                if older is None:
                    raise
                # Perhaps it is being written at this moment: the next request looks again.
                log.warning(
                    "%s has changed but cannot be loaded, going on with what was loaded: %s", folder, error
                )
                key, engine = older, self._engines.pop(older)
        self._engines[key] = engine  # the one used last stands last
        self.device = engine.device_name
        self.models = [k[0] for k in self._engines]
        return engine

    def _make_room(self, older: EngineKey | None) -> None:
        """Unload the models used least recently; jobs that run on one keep it until they end."""
        others = [key for key in self._engines if key != older]
        for key in others[: max(0, len(others) - MAX_MODELS + 1)]:
            del self._engines[key]

    def _unload(self) -> None:
        import torch

        log.info("idle: models unloaded")
        self._engines.clear()
        self.models, self.gpu_bytes = [], 0
        gc.collect()  # a network and its decoder know each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _explain(self, error: Exception) -> str:
        if isinstance(error, ImportError):
            return f"the engine's packages are not installed ({error}); run: pip install 'dice-ls[engine]'"
        import torch

        from dice_engine.decode.jobs import DecodeError
        from dice_engine.model.config import CheckpointError

        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
            return "the GPU has too little free memory; ask for fewer candidates or close other programs"
        if isinstance(error, (CheckpointError, DecodeError, PromptError, ValueError)):
            return str(error)
        log.exception("a request failed")
        return f"the engine failed inside ({type(error).__name__}: {error}); its log has more"


def _event(request: wire.GenerateRequest, event: BlockProgress | Candidate) -> wire.Event:
    from dice_engine.engine import Candidate

    if isinstance(event, Candidate):
        return wire.CandidateEvent(
            *(
                request.id,
                event.index,
                event.core,
                event.tokens,
                event.step_map,
                event.complete,
                event.seconds,
            )
        )
    progress = (request.id, event.candidate, event.tokens, event.finished, event.n)
    return wire.Progress(*progress, event.new, event.steps) if request.trace else wire.Progress(*progress)


def _times(folder: Path) -> tuple[tuple[str, int], ...]:
    """When each file that makes a checkpoint was written."""
    found = []
    for pattern in ("*.json", "*.safetensors"):
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(OSError):
                found.append((path.name, path.stat().st_mtime_ns))
    return tuple(found)
