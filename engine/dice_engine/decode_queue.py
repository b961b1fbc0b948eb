"""The decode worker: one thread that owns the loaded models and decodes the requests of all clients.

The thread steps one request at a time, block by block; a request of higher priority that arrives meanwhile goes on
first at the next block. torch is imported in the thread, when the first request comes.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dice_engine
from dice_engine import wire
from dice_engine.devices import without_doubt
from dice_engine.prompts import CoreRequest, PromptError

if TYPE_CHECKING:
    from dice_engine.engine import BlockProgress, Candidate, Engine

log = logging.getLogger(__name__)

MAX_WAITING = 64
MAX_MODELS = 2

Emit = Callable[[wire.Event], None]


@dataclass
class DecodeJob:
    """A generate request in the queue. ``emit`` is called in the decode thread."""

    request: wire.GenerateRequest
    emit: Emit
    order: int
    cancelled: bool = False
    stream: Iterator[BlockProgress | Candidate] | None = field(default=None, repr=False)


class QueueFull(Exception):
    """Too many requests wait already."""


class DecodeQueue:
    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._jobs: list[DecodeJob] = []
        self._changed = threading.Condition()
        self._orders = itertools.count()
        self._engines: dict[tuple[Any, ...], Engine] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="decode", daemon=True)
        self._thread.start()
        self.device: str | None = None
        """Name of the device of the model used last; None before the first."""
        self.models: list[str] = []

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def running(self) -> int:
        return sum(job.stream is not None for job in self._jobs)

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
                # A cancelled job first: ending it costs nothing and its client may wait for the word.
                job = min(self._jobs, key=lambda j: (not j.cancelled, -j.request.priority, j.order))
            last = self._step(job)
            if last is not None:
                if job.stream is not None:
                    job.stream.close()  # type: ignore[attr-defined]  # a generator: frees its cache now
                    job.stream = None
                with self._changed:
                    self._jobs.remove(job)
                job.emit(last)

    def _step(self, job: DecodeJob) -> wire.Done | wire.Error | None:
        """Decode a job's next block; the event that ends it, or None when there is more to do."""
        request = job.request
        if job.cancelled:
            return wire.Done(request.id, cancelled=True)
        try:
            if job.stream is None:
                job.stream = self._open(request)
            event = next(job.stream, None)
        except PromptError as error:
            return wire.Error(request.id, str(error))
        except Exception as error:
            return wire.Error(request.id, self._explain(error))
        if event is None:
            return wire.Done(request.id)
        job.emit(_event(request.id, event))
        return None

    def _open(self, request: wire.GenerateRequest) -> Iterator[BlockProgress | Candidate]:
        engine = self._engine(request.checkpoint, without_doubt(request.device))
        return engine.stream(
            CoreRequest(request.kind, request.prefix, request.suffix, request.reference, request.begin),
            request.n,
            request.seed,
            temperature=request.temperature,
            max_new_tokens=request.max_new_tokens,
        )

    def _engine(self, checkpoint: str | None, device: str) -> Engine:
        from dice_engine.engine import Engine

        folder = Path(checkpoint) if checkpoint else dice_engine.NANO
        # The times are in the key: a checkpoint that was written anew is loaded anew.
        key = (str(folder), device, *(_time(folder / name) for name in ("config.json", "model.safetensors")))
        engine = self._engines.pop(key, None)
        if engine is None:
            stale = [k for k in self._engines if k[:2] == key[:2]]
            for k in [*stale, *list(self._engines)[: max(0, len(self._engines) - MAX_MODELS + 1)]]:
                self._engines.pop(k, None)
            start = time.monotonic()
            engine = Engine.load(folder, device)
            log.info("loaded %s on %s in %.1f s", folder, engine.device_name, time.monotonic() - start)
        self._engines[key] = engine  # the one used last stands last
        self.device = engine.device_name
        self.models = [k[0] for k in self._engines]
        return engine

    def _unload(self) -> None:
        import torch

        log.info("idle: models unloaded")
        self._engines.clear()
        self.models = []
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
        if isinstance(error, (CheckpointError, DecodeError, ValueError)):
            return str(error)
        log.exception("a request failed")
        return f"the engine failed inside ({type(error).__name__}: {error}); its log has more"


def _event(id: str, event: BlockProgress | Candidate) -> wire.Event:
    from dice_engine.engine import Candidate

    if isinstance(event, Candidate):
        return wire.CandidateEvent(
            id, event.index, event.core, event.tokens, event.step_map, event.complete, event.seconds
        )
    return wire.Progress(id, event.candidate, event.tokens, event.finished, event.n)


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
