"""A pool of Ray actors on the nodes of a cluster, fed from one queue: who is idle takes the next piece of work.

What was on a node or in an actor that is lost goes back to the front of the queue. It is never held against the
candidate: after ``RETRIES`` losses it is ``infra_error``. Nodes that join while a run lasts are used.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from dice_training.judging import JudgePool
from dice_training.pool import PoolError
from dice_training.pool.connection import connect, first_line, shared_verdicts
from dice_training.pool.host import About, Host, version
from dice_training.pool.work import Options, Work

RETRIES = 3
_WAIT_SECONDS = 0.1
_LOOK_SECONDS = 2.0
_EMPTY_SECONDS = 120.0
"""How long work waits for the first node, or for another one when all are lost."""
_PATIENCE_SECONDS = 30.0
_END_SECONDS = 8.0


@dataclass
class _Job:
    work: Work
    future: Future[list[Any]]
    losses: int = 0


@dataclass
class _Slot:
    """One actor: asked for, then ready (``about`` is known), then lost or closed. Without ``workers`` it is of
    another version and not used."""

    node: str
    actor: Any
    workers: int
    about: About | None = None
    jobs: int = 0


@dataclass
class _Cluster:
    """What the driving thread knows. ``refs``: what is awaited, a job or a slot's first word."""

    slots: list[_Slot] = field(default_factory=list)
    refs: dict[Any, tuple[_Slot, _Job | None]] = field(default_factory=dict)
    looked: float = 0.0
    empty_since: float = field(default_factory=time.monotonic)


class RayPool(JudgePool):
    def __init__(self, place: str, options: Options, *, plain: bool = False, deadline: float = 600.0) -> None:
        """Join the cluster at ``place`` (``ray://host:port``, or ``ray``: this machine's). Raises PoolError."""
        super().__init__(options, plain)
        self.losses = 0
        """Pieces of work that were lost with a node, and asked again."""
        self._deadline = deadline
        self._ray, self._joined = connect(place)
        self._verdicts = shared_verdicts(self._ray)
        self._queue: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._kind: str | None = None
        self._told: set[str] = set()
        self._failed: Counter[str] = Counter()
        self._opened = time.monotonic()
        self._state = _Cluster()
        self._look()
        if not self._state.slots:
            self._leave()
            raise PoolError(
                f"{place}: no node there has a {'GPU' if options.device == 'cuda' else 'core'} to judge on"
            )
        self._thread = threading.Thread(target=self._drive, name="pool", daemon=True)
        self._thread.start()

    @property
    def workers(self) -> int:
        return sum(slot.workers for slot in self._state.slots)

    def run(self, work: Work) -> Future[list[Any]]:
        future: Future[list[Any]] = Future()
        if not work.items:
            future.set_result([])
            return future
        with self._changed:
            self._queue.append(_Job(work, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        self._closing = True
        with self._changed:
            self._changed.notify()
        self._thread.join()
        for _, job in self._state.refs.values():
            if job is not None:
                _give_up(job, "the pool was closed")
        for job in self._queue:
            job.future.cancel()
        self._leave()

    # -- in the driving thread

    def _drive(self) -> None:
        while not self._closing:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closing or self._queue or self._state.refs, _LOOK_SECONDS
                )
            try:
                if time.monotonic() - self._state.looked > _LOOK_SECONDS:
                    self._look()
                self._give_out()
                self._collect()
            except self._ray.exceptions.RayError as error:  # the cluster itself is gone
                self._tell(f"the pool does not answer: {first_line(error)}")
                time.sleep(1.0)
            except ConnectionError as error:
                self._tell(f"the connection to the pool is lost: {first_line(error)}")
                self._all_lost(f"the connection to the pool is lost: {first_line(error)}")
                time.sleep(1.0)

    def _look(self) -> None:
        """Ask for an actor on each GPU, or the cores of each node, that has none yet."""
        self._state.looked = time.monotonic()
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        alive = {node["NodeID"] for node in nodes}
        for slot in [slot for slot in self._state.slots if slot.node not in alive]:
            self._lose(slot)
        taken = Counter(slot.node for slot in self._state.slots)
        for node in nodes:
            count = int(node["Resources"].get("CPU", 0))
            places = int(node["Resources"].get("GPU", 0)) if self.options.device == "cuda" else min(1, count)
            if self._failed[node["NodeID"]] < RETRIES:
                for _ in range(places - taken[node["NodeID"]]):
                    self._open(node["NodeID"], max(1, count // places))

    def _open(self, node: str, workers: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        gpu = self.options.device == "cuda"
        actor = (
            self._ray.remote(Host)
            .options(
                num_cpus=workers,
                num_gpus=1 if gpu else 0,
                max_concurrency=workers + 2,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(self.options, workers, self._deadline, self._verdicts)
        )
        slot = _Slot(node, actor, workers)
        self._state.slots.append(slot)
        self._state.refs[actor.about.remote()] = (slot, None)

    def _give_out(self) -> None:
        slots, now = self._state.slots, time.monotonic()
        if any(slot.workers for slot in slots):
            self._state.empty_since = now
        elif now - self._state.empty_since > _EMPTY_SECONDS:
            self._all_lost("no node of the pool is left that can be used")
            return
        ready = [slot for slot in slots if slot.about]
        if not ready and now - self._opened > _PATIENCE_SECONDS:
            self._tell("waiting for the pool: all that it has is in use")
        idle = [slot for slot in ready if slot.jobs < slot.workers]
        with self._changed:
            waiting, self._queue = self._queue, deque()
        kept: list[_Job] = []
        for job in waiting:
            fitting = [slot for slot in idle if self._may_have(slot, job)]
            if not fitting:
                kept.append(job)
                continue
            slot = min(fitting, key=lambda one: one.jobs / one.workers)
            slot.jobs += 1
            self._state.refs[slot.actor.run.remote(job.work)] = (slot, job)
            if slot.jobs >= slot.workers:
                idle.remove(slot)
        with self._changed:
            self._queue.extendleft(reversed(kept))

    def _may_have(self, slot: _Slot, job: _Job) -> bool:
        """Times of one run are taken on one kind of GPU: the most common one when the first is taken."""
        if not job.work.alone:
            return True
        if self._kind is None:
            kinds = Counter(one.about.device for one in self._state.slots if one.about)
            self._kind = kinds.most_common(1)[0][0]
        return slot.about is not None and slot.about.device == self._kind

    def _collect(self) -> None:
        refs = list(self._state.refs)
        if not refs:
            time.sleep(_WAIT_SECONDS)
            return
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=_WAIT_SECONDS)
        for ref in ready:
            slot, job = self._state.refs.pop(ref)
            try:
                answer = self._ray.get(ref)
            except (
                self._ray.exceptions.RayTaskError
            ) as error:  # our own code failed there: not the node's doing
                slot.jobs -= 1
                if job is not None:
                    job.future.set_exception(error.cause if isinstance(error.cause, Exception) else error)
            except self._ray.exceptions.RayError as error:
                self._lose(slot)
                if job is not None:
                    self._again(job, first_line(error))
                else:
                    self._failed[slot.node] += 1
                    self._tell(f"node {slot.node[:8]} does not start: {first_line(error)}")
            else:
                if job is None:
                    self._welcome(slot, answer)
                else:
                    slot.jobs -= 1
                    job.future.set_result(answer)

    def _welcome(self, slot: _Slot, about: About) -> None:
        if about.version == version():
            slot.about = about
            return
        self._tell(f"node {slot.node[:8]} is left out: it has dice-ls {about.version}, this is {version()}")
        slot.workers = 0

    def _lose(self, slot: _Slot) -> None:
        """Whatever was asked of it raises by itself, and is asked again."""
        if slot in self._state.slots:
            self._state.slots.remove(slot)
            self._kill(slot)

    def _again(self, job: _Job, reason: str) -> None:
        self.losses += 1
        job.losses += 1
        if job.losses > RETRIES:
            _give_up(job, f"lost {job.losses} times with the node it was on: {reason}")
            return
        with self._changed:
            self._queue.appendleft(job)

    def _all_lost(self, reason: str) -> None:
        with self._changed:
            waiting, self._queue = self._queue, deque()
        held = [job for _, job in self._state.refs.values() if job is not None]
        self._state.refs = {ref: (slot, job) for ref, (slot, job) in self._state.refs.items() if job is None}
        for job in (*waiting, *held):
            _give_up(job, reason)

    # -- around it

    def _kill(self, slot: _Slot) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError, ConnectionError):
            self._ray.kill(slot.actor)

    def _leave(self) -> None:
        """End the actors, first in peace: their children end their own."""
        ray = self._ray
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
            closing = [slot.actor.close.remote() for slot in self._state.slots if slot.about]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=_END_SECONDS)
        for slot in self._state.slots:
            self._kill(slot)
        if self._joined:
            ray.shutdown()

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            print(words, file=sys.stderr, flush=True)


def _give_up(job: _Job, reason: str) -> None:
    job.future.set_result([job.work.lost(item, reason) for item in job.work.items])
