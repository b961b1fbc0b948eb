"""The engine: a checkpoint, its tokenizer and the decoder; requests in, candidate cores out."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import dice_engine
from dice_engine.chat import core_end, may_end
from dice_engine.decode.forks import forks
from dice_engine.decode.generation import decoder_of
from dice_engine.decode.jobs import BlockEvent, DecodeRequest, Job, JobFailed, Reply
from dice_engine.decode.strategies import DecodeOptions, StrategyName
from dice_engine.loading import checkpoint_folder
from dice_engine.model.config import CheckpointError
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import CoreRequest, PromptError, build_prompt, parse_core

MAX_CPU_THREADS = 4


@dataclass(frozen=True)
class Candidate:
    index: int
    core: str
    tokens: list[int]
    step_map: list[int]
    """For each token the step inside its block at which it was unmasked."""
    complete: bool
    """The model ended it; False: cut at the length limit."""
    seconds: float
    """From the start of the request until this candidate was done."""


@dataclass(frozen=True)
class BlockProgress:
    """``candidate`` has one more block and ``tokens`` tokens now; ``finished`` of ``n`` candidates are done."""

    candidate: int
    tokens: int
    finished: int
    n: int
    new: list[int]
    """The block's tokens."""
    steps: list[int]
    """For each of them, the step inside the block at which it was unmasked."""


class Task:
    """A request that an engine works on. ``events`` are those that nobody has taken yet, in order."""

    def __init__(self, request: CoreRequest, n: int, stop: Sequence[str], priority: int) -> None:
        self.request, self.stop, self.priority = request, list(stop), priority
        self.n = n
        """Candidates that come."""
        self.jobs: dict[Job, int] = {}
        """What is decoded for it, and the index of each one's first candidate."""
        self.events: deque[BlockProgress | Candidate] = deque()
        self.error: Exception | None = None
        self.finished = 0
        self.started = time.monotonic()

    @property
    def done(self) -> bool:
        """No more events come."""
        return self.error is not None or self.finished == self.n

    @property
    def to_fork(self) -> bool:
        """The candidates after the first wait for it."""
        return sum(len(job.replies) for job in self.jobs) < self.n


class Engine:
    """One loaded checkpoint. Not for use from several threads at once.

    Requests that are submitted are decoded together, whatever their lengths; :meth:`step` is one pass of the network
    for all of them. :meth:`stream`, :meth:`candidates` and :meth:`candidates_many` do all of that for their caller.
    """

    def __init__(
        self, model: SdarModel, tokenizer: DiceTokenizer, folder: Path, memory: int | None = None
    ) -> None:
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.format = model.config.format
        self._decoder = decoder_of(model, memory=memory)
        self._tasks: dict[Job, Task] = {}

    @staticmethod
    def load(
        path: str | Path | None = None,
        device: str = "auto",
        dtype: Any = None,
        gpu_memory: float | None = None,
    ) -> Engine:
        """Load a checkpoint folder with its tokenizer; arguments and errors as for :func:`dice_engine.load`.

        ``gpu_memory``: the share of the GPU's memory that this process may use, weights included; None: what the
        weights need and a moderate room for keys and values.
        """
        folder = checkpoint_folder(path or dice_engine.NANO)
        model = dice_engine.load(folder, device, dtype)
        memory = None
        if model.device.type == "cpu":
            bound_threads()
        elif gpu_memory is not None:
            memory = _room_for_keys(model.device, gpu_memory, folder)
        return Engine(model, DiceTokenizer.load(folder, model.config), folder, memory)

    @property
    def device_name(self) -> str:
        device = self.model.device
        return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

    @property
    def gpu_bytes(self) -> int:
        """GPU memory that this process holds; 0 on a CPU."""
        device = self.model.device
        return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0

    def candidates(
        self,
        request: CoreRequest,
        n: int = 8,
        seed: int = 0,
        on_block: Callable[[BlockProgress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        **options: Any,
    ) -> list[Candidate]:
        """All candidates in the order of their index (the greedy one first); ``cancelled`` is asked after each pass,
        and what was finished by then is returned. ``options`` as for :meth:`submit`."""
        found = []
        for event in self.stream(request, n, seed, **options):
            if isinstance(event, Candidate):
                found.append(event)
            elif on_block is not None:
                on_block(event)
            if cancelled is not None and cancelled():
                break
        return sorted(found, key=lambda c: c.index)

    def candidates_many(
        self,
        requests: Sequence[CoreRequest],
        n: int = 8,
        seed: int = 0,
        on_done: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[list[Candidate]]:
        """The candidates of every request, as :meth:`candidates` would give them one request after another: a
        candidate depends on its own request and seed only. ``on_done`` hears how many requests are finished.

        As many are decoded together as the decoder has room for. Raises the error of a request that fails.
        """
        tasks: list[Task] = []
        told = 0
        try:
            for request in requests:
                tasks.append(self.submit(request, n, seed, **options))
            while not all(task.done for task in tasks):
                self.step()
                done = sum(task.done for task in tasks)
                if on_done is not None and done > told:
                    on_done(done)
                told = done
        finally:
            for task in tasks:
                self.cancel(task)
        for task in tasks:
            if task.error is not None:
                raise task.error
        found = [[event for event in task.events if isinstance(event, Candidate)] for task in tasks]
        return [sorted(candidates, key=lambda c: c.index) for candidates in found]

    def stream(
        self, request: CoreRequest, n: int = 8, seed: int = 0, **options: Any
    ) -> Iterator[BlockProgress | Candidate]:
        """The events of one request as they come; arguments as for :meth:`submit`. Stop iterating to cancel."""
        task = self.submit(request, n, seed, **options)
        try:
            while not task.done:
                self.step()
                while task.events:
                    yield task.events.popleft()
        finally:
            self.cancel(task)
        if task.error is not None:
            raise task.error

    def submit(
        self,
        request: CoreRequest,
        n: int = 8,
        seed: int = 0,
        *,
        temperature: float | None = None,
        max_new_tokens: int = 1024,
        strategy: StrategyName = "low_confidence_dynamic",
        steps: int | None = None,
        threshold: float = 0.9,
        gamma: float = 0.3,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        priority: int = 0,
    ) -> Task:
        """Queue ``n`` candidates. Candidate 0 is greedy, i > 0 is drawn at ``temperature`` with ``seed + i``; without
        a temperature it takes the i-th likeliest other turn where the first one was least sure, and goes on from
        there (see ``decode/forks.py``): no two are alike, and where there are no such turns fewer than ``n`` come.
        A core ends before the first of the texts in ``stop``. Requests of higher ``priority`` go first.

        Events are a :class:`BlockProgress` for each block and a :class:`Candidate` for each that is done. Raises
        :class:`dice_engine.prompts.PromptError` for a request that does not fit the context.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, it is {n}")
        context = self.model.config.max_position_embeddings
        prompt = build_prompt(
            request, self.tokenizer, context - min(max_new_tokens, context // 2), format=self.format
        )
        options = DecodeOptions(
            max_new_tokens=min(max_new_tokens, context - len(prompt)),
            strategy=strategy,
            steps=steps,
            threshold=threshold,
            gamma=gamma,
            top_k=top_k,
            top_p=top_p,
        )
        task = Task(request, n, stop, priority)
        alone = temperature is None
        seeds = [seed + i for i in range(1 if alone else n)]
        temperatures = [0.0] + [temperature or 0.0] * (len(seeds) - 1)
        stop_ids = self.tokenizer.stop_ids
        self._decode(
            task, 0, DecodeRequest(prompt, options, seeds, temperatures, stop_ids, keep=n > len(seeds))
        )
        return task

    def _decode(self, task: Task, first: int, request: DecodeRequest) -> Job:
        job = self._decoder.submit(request, task.priority)
        task.jobs[job] = first
        self._tasks[job] = task
        return job

    def cancel(self, task: Task) -> None:
        """Nothing more is decoded for ``task``; harmless when it is done."""
        for job in task.jobs:
            self._decoder.cancel(job)
            self._tasks.pop(job, None)

    def step(self) -> None:
        """One pass for everything submitted; what happened is in the tasks' ``events``."""
        for event in self._decoder.step():
            task = self._tasks.get(event.job)
            if task is None:
                continue
            if isinstance(event, JobFailed):
                task.error = event.error
            else:
                self._tell(task, event)

    def _tell(self, task: Task, event: BlockEvent) -> None:
        reply, index = event.job.replies[event.candidate], task.jobs[event.job] + event.candidate
        core = self._core(task, reply.tokens, len(event.tokens), event.finished)
        if core is not None:
            self._decoder.stop(event.job, event.candidate)  # harmless where it has finished
            task.finished += 1
        task.events.append(
            BlockProgress(index, len(reply.tokens), task.finished, task.n, event.tokens, event.steps)
        )
        if core is not None:
            seconds = time.monotonic() - task.started
            task.events.append(Candidate(index, core, reply.tokens, reply.step_map, reply.stopped, seconds))
            if task.to_fork:
                self._fork(task, event.job.request, reply)

    def _fork(self, task: Task, request: DecodeRequest, reply: Reply) -> None:
        """Begin the candidates that leave ``reply``, the first one's."""
        decoder, stop_ids = self._decoder, self.tokenizer.stop_ids
        last = request.options.max_new_tokens - 1  # what is forced must leave something to decode
        try:
            found = forks(
                *(self.model, decoder.pool, request.prompt, reply.tokens, reply.step_map, decoder.size),
                banned=stop_ids,
            )
            found = [fork for fork in found if fork.place < last][: task.n - 1]
            task.n = 1 + len(found)
            for index, fork in enumerate(found, 1):
                forced = [*reply.tokens[: fork.place], fork.token]
                job = self._decode(task, index, replace(request, forced=forced, keep=False))
                steps = job.replies[0].step_map = [*reply.step_map[: fork.place], 0]
                task.events.append(
                    BlockProgress(index, len(forced), task.finished, task.n, forced, list(steps))
                )
        except (torch.OutOfMemoryError, ValueError) as error:
            task.error = error

    def _core(self, task: Task, tokens: list[int], new: int, finished: bool) -> str | None:
        """The core, without its given beginning, in a reply whose last ``new`` tokens have just come; None: there is
        more to come."""
        kind, suffix, chat = task.request.kind, task.request.suffix, self.format != "fim"
        if not finished:
            if not chat and not task.stop:
                return None
            # A token is at least a byte, so this is as far back as a text can reach that ends here.
            reach = new + max((len(text.encode()) for text in task.stop), default=0) + 4
            written = self.tokenizer.decode(tokens[-reach:])
            stops = any(text in written for text in task.stop)
            if not stops and not (chat and may_end(kind, written)):
                return None
        text = self.tokenizer.decode(tokens)
        places = [text.find(stop) for stop in task.stop]
        cut = min((place for place in places if place >= 0), default=None)
        begin = task.request.begin
        if cut is None and not finished and core_end(kind, begin + text, suffix) is None:
            return None
        return parse_core(kind, begin + text[:cut], self.format, suffix)[len(begin) :]


def _room_for_keys(device: torch.device, share: float, folder: Path) -> int:
    """Bytes that keys and values may take, when ``share`` of a GPU is ours; passes need some room of their own."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(share, device)
    room = int(share * total) - torch.cuda.memory_allocated(device)
    if room < 0.1 * share * total:
        raise CheckpointError(
            f"{folder}: {share:.0%} of this GPU leaves {max(room, 0) / 1e9:.1f} GB beside the weights; allow more "
            "with --gpu-memory, or take a smaller checkpoint"
        )
    return int(0.7 * room)


def bound_threads() -> None:
    """Leave the machine usable: decoding on a CPU takes at most four threads, and never more than there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, min(MAX_CPU_THREADS, cores, torch.get_num_threads())))


__all__ = ["BlockProgress", "Candidate", "Engine", "PromptError", "Task"]
