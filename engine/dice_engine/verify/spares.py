"""Runners made ahead of need: opening a GPU and closing it again takes half a second that nobody has to wait for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dice_engine.verify.worker import Failed, Worker

_READY_SECONDS = 60.0


class Spares:
    """At most one runner with its GPU open and torch's common kernels loaded; ended runners are closed behind.

    Not for runners on the CPU: a fork is cheaper than a hand-over.
    """

    def __init__(self, make: Callable[[], Worker]):
        self._make = make
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="spares")
        self._next: Future[Worker | None] | None = None
        self._closing: list[Future[bool]] = []

    def refill(self) -> None:
        """Have a runner made, unless there is one."""
        if self._next is None:
            self._next = self._threads.submit(self._ready)

    def take(self) -> Worker:
        """The runner that was made, or a new one. Raises Failed where none can be made."""
        waiting, self._next = self._next, None
        worker = waiting.result() if waiting is not None else None
        return worker if worker is not None and not worker.dead else self._make()

    def bury(self, worker: Worker) -> None:
        """Close a runner without waiting for its end."""
        self._closing = [job for job in self._closing if not job.done()]
        self._closing.append(self._threads.submit(worker.close))

    def settle(self) -> None:
        """Wait until nothing of this is going on: a clock is about to start."""
        for job in (*self._closing, *([self._next] if self._next is not None else [])):
            job.result()

    def close(self) -> None:
        """End the runner that was made, and wait for all that are ending."""
        waiting, self._next = self._next, None
        worker = waiting.result() if waiting is not None else None
        if worker is not None:
            worker.close()
        self._threads.shutdown(wait=True)

    def _ready(self) -> Worker | None:
        """None where it fails: whoever needs a runner then makes one and sees why."""
        try:
            worker = self._make()
        except Failed:
            return None
        try:
            worker.ask("prepare", _READY_SECONDS)
        except Failed:
            worker.close()
            return None
        return worker
