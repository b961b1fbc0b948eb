"""A pool of processes of this machine. Each keeps a session of its own; one that dies or gets stuck is replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from dice_training.cuke.verify import use_gpu
from dice_training.judging import JudgePool, cores
from dice_training.pool.work import Options, Work

LOST = "a verify worker died or got stuck"
_END_SECONDS = 5.0


class LocalPool(JudgePool):
    """``workers`` processes, spread over the GPUs that this process sees. Work that must be ``alone`` waits until
    nothing else is at work, and is always given to the same worker: times of different GPUs are not compared."""

    def __init__(
        self, options: Options, workers: int, *, plain: bool = False, deadline: float = 600.0
    ) -> None:
        super().__init__(options, plain)
        self.deadline = deadline
        self._threads_each = max(1, cores() // workers)
        self._closing = False
        self._turn = _Turn()
        self._changed = threading.Condition()
        self._children = [self._child(number) for number in range(workers)]
        self._idle = list(self._children)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="judge")

    @property
    def workers(self) -> int:
        return len(self._children)

    def run(self, work: Work) -> Future[list[Any]]:
        return self._threads.submit(self._run, work)

    def close(self) -> None:
        self._closing = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.ask_to_end()
        self._threads.shutdown()  # their questions have no answer any more
        for child in self._children:
            child.end()

    def _run(self, work: Work) -> list[Any]:
        if not work.items:
            return []
        with self._turn.alone() if work.alone else self._turn.shared():
            child = self._take(first=work.alone)
            answers: list[Any] = []
            try:
                while len(answers) < len(work.items):
                    rest = replace(work, items=work.items[len(answers) :])  # type: ignore[type-var]
                    answers += child.answers(rest, self.deadline)
                    if len(answers) < len(work.items):
                        answers.append(work.lost(work.items[len(answers)], LOST))
                        child = self._replaced(child)
                return answers
            finally:
                with self._changed:
                    self._idle.append(child)
                    self._changed.notify()

    def _take(self, first: bool) -> _Child:
        """An idle worker; ``first``: the first of all."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle)
            child = min(self._idle, key=lambda one: one.number) if first else self._idle[-1]
            self._idle.remove(child)
            return child

    def _replaced(self, child: _Child) -> _Child:
        if self._closing:
            return child
        child.end()
        self._children[child.number] = self._child(child.number)
        return self._children[child.number]

    def _child(self, number: int) -> _Child:
        return _Child(number, self.options, self._threads_each)


class _Turn:
    """Many at a time, or one alone; who wants to be alone comes next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = self._waiting = 0
        self._is_alone = False

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone and not self._waiting)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._is_alone and not self._busy)
            self._waiting -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


class _Child:
    """One worker process and our end of its pipe."""

    def __init__(self, number: int, options: Options, threads: int) -> None:
        self.number = number
        # Forks of a process whose torch has threads hang, so workers start anew.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, number, options, threads), daemon=True)
        self._process.start()
        theirs.close()

    def answers(self, work: Work, deadline: float) -> list[Any]:
        """Fewer than there are items: it died, or gave no answer for ``deadline`` seconds. Raises what ``work``
        raised."""
        found: list[Any] = []
        with contextlib.suppress(EOFError, OSError):
            self._pipe.send(work)
            while len(found) < len(work.items) and self._pipe.poll(deadline):
                found.append(self._pipe.recv())
                if isinstance(found[-1], Exception):
                    break
        if found and isinstance(found[-1], Exception):
            raise found[-1]
        return found

    def ask_to_end(self) -> None:
        """SIGTERM, so that the session can end its own children."""
        self._process.terminate()

    def end(self) -> None:
        self.ask_to_end()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _work(pipe: Connection, number: int, options: Options, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    if options.device != "cpu":
        use_gpu(number)
    with contextlib.suppress(EOFError, BrokenPipeError), options.session(threads) as session:
        while True:
            work: Work = pipe.recv()
            for item in work.items:
                try:
                    pipe.send(work.answer(session, item))
                except (EOFError, BrokenPipeError):
                    raise
                except Exception as error:
                    pipe.send(error)
                    break


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # said once is enough
    raise SystemExit(0)  # through the session's exit, which ends its own children


def _end_with_parent() -> None:
    """A parent that was killed closes nothing and stops nobody: what runs now would run to its end, a build for
    minutes."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)  # the runners and their zygote die with this process
