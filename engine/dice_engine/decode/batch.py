"""Continuous batching: requests of any prompt length are decoded together, candidates join and leave at every pass.

On a GPU the host reads the results of a pass while the next one runs, so neither waits for the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from dice_engine.decode import rows as columns
from dice_engine.decode.jobs import BlockEvent, DecodeError, DecodeRequest, Job, JobFailed
from dice_engine.decode.pages import PagePool
from dice_engine.decode.passes import Passes, Shape, can_fuse
from dice_engine.decode.rows import NewRow, Rows
from dice_engine.decode.sampling import Needs
from dice_engine.decode.strategies import steps_needed
from dice_engine.decode.upload import uploaded
from dice_engine.model.network import SdarModel

PREFILL_TOKENS = 2048
"""Prompt tokens that are prefilled between two passes at most, so that running candidates are not held up."""
MAX_ROWS = 256
_ROW_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)

Event: TypeAlias = BlockEvent | JobFailed


@dataclass
class _Live:
    """A candidate in the batch, as far as the host has read."""

    job: Job
    candidate: int
    place: int
    pages: list[int]
    start: int
    order: int
    left: int | None
    """Passes until its block is complete, where quotas alone decide; None: the device knows."""
    fresh: bool = False
    paused: bool = False
    gone: bool = False


@dataclass(frozen=True)
class _Pending:
    record: Tensor
    ready: torch.cuda.Event | None
    rows: list[_Live]


class BatchDecoder:
    """Decodes many requests together: :meth:`submit` them, then :meth:`step` until :attr:`idle`.

    A candidate's tokens depend on its own prompt, options, seed and temperature only. ``pages`` bounds the memory (see
    :class:`PagePool`); requests wait until there is room. ``static``: passes of few different shapes, captured in CUDA
    graphs, and results read one pass later; None: on a GPU. ``fused``: with this project's Triton kernels;
    None: where they run. For one thread.
    """

    def __init__(
        self,
        model: SdarModel,
        block_size: int | None = None,
        *,
        pages: int,
        max_rows: int = MAX_ROWS,
        static: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        config = model.config
        self.model, self.size = model, block_size or config.block_size
        self.pool = PagePool(model, self.size, pages)
        self._rows = Rows(max_rows, self.size, config.mask_token_id, model.device)
        longest = self.pool.pages_of(config.max_position_embeddings + self.size)
        self._table = torch.zeros(max_rows, longest, dtype=torch.int64, device=model.device)
        self._static = model.device.type == "cuda" if static is None else static
        use_fused = self._static and can_fuse(model.device) if fused is None else fused
        self._passes = Passes(model, self.pool, self._rows, self._table, self._static, use_fused)
        self._live: list[_Live] = []
        self._waiting: list[Job] = []
        self._pending: _Pending | None = None
        self._failed: list[JobFailed] = []
        self._weights = -1
        self._found_at = _place_of(model)
        self._orders = itertools.count()

    def fits(self, model: SdarModel) -> bool:
        """Whether the weights still are where this decoder found them."""
        return self._found_at == _place_of(model)

    @property
    def idle(self) -> bool:
        return not (self._live or self._waiting or self._pending or self._failed)

    def submit(self, request: DecodeRequest, priority: int = 0) -> Job:
        """Queue a request; those of higher ``priority`` begin first, and have a slow device to themselves.

        Raises ``ValueError`` for one that cannot be decoded here.
        """
        request.check(self.model.config)
        if self.idle:
            self._forget_old_weights()
        job = Job(request, self.size, priority)
        needed = self.pool.pages_of(job.start) + self._own_pages(job)
        if needed >= self.pool.count:
            raise ValueError(
                f"{job.limit} tokens need {needed} pages of keys and values, there are {self.pool.count - 1}"
            )
        place = next((i for i, other in enumerate(self._waiting) if other.priority < priority), None)
        self._waiting.insert(len(self._waiting) if place is None else place, job)
        return job

    def stop(self, job: Job, candidate: int) -> None:
        """Let a candidate end with what it has: it takes no part in the next pass."""
        for row in self._live:
            if row.job is job and row.candidate == candidate:
                job.replies[candidate].stopped = True
                self._leave(row)
                return

    def cancel(self, job: Job) -> None:
        """Forget a job; no more events come of it."""
        self._drop_job(job, broken=False)

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Prefill what is waiting, run one pass, and tell what is known of the passes so far."""
        self.admit()
        self._pause()
        launched = None
        while self._live and launched is None:
            try:
                launched = self._launch()
            except torch.OutOfMemoryError as error:
                # The one that joined last gives way, so that the others can go on.
                self._fail(max(self._live, key=lambda row: row.order).job, error)
        done, self._pending = (self._pending, launched) if self._static else (launched, None)
        events: list[Event] = [*self._failed]
        self._failed = []
        if done is not None:
            events += self._collect(done)
        return events

    def _forget_old_weights(self) -> None:
        """Keys and values of an earlier request are of no use after a training step."""
        version = sum(parameter._version for parameter in self.model.parameters())
        if version != self._weights:
            self._weights = version
            self.pool.forget()

    # Joining

    def _own_pages(self, job: Job) -> int:
        end = -(-job.limit // self.size) * self.size
        return self.pool.pages_of(end) - job.start // self.pool.size

    @torch.inference_mode()
    def admit(self) -> None:
        """Prefill what is waiting, as far as one step does, and give rows to its candidates."""
        budget = PREFILL_TOKENS
        while self._waiting and budget > 0:
            job = self._waiting[0]
            try:
                if not job.pages and job.start and not self._begin(job):
                    return
                while job.prefilled < job.start:
                    if budget <= 0:
                        return
                    budget -= self._prefill(job, budget)
            except torch.OutOfMemoryError as error:
                self._fail(job, error)
                continue
            if not self._join(job):
                return
            self._waiting.remove(job)

    def _begin(self, job: Job) -> bool:
        """Find or take the pages of the prompt."""
        prompt = job.prompt[: job.start]
        found = self.pool.find(prompt)
        missing = self.pool.pages_of(job.start) - len(found)
        if self.pool.available < missing + (0 if self._live else self._own_pages(job)):
            self.pool.give_back(found)
            self._interrupt_prefills(job)
            return False
        job.pages = found + self.pool.take(missing)
        job.prefilled = len(found) * self.pool.size
        return True

    def _interrupt_prefills(self, job: Job) -> None:
        """Jobs that wait behind ``job`` and hold pages of their prompts give them back, and begin anew later."""
        for other in self._waiting:
            if other is not job and other.pages and not other.joined:
                self.pool.give_back(other.pages)
                other.pages, other.prefilled = [], 0

    def _prefill(self, job: Job, budget: int) -> int:
        """Keys and values of the prompt's next blocks; returns how many tokens."""
        start = job.prefilled
        end = min(job.start, start + max(1, budget // self.size) * self.size)
        self._passes.prefill(job.prompt[start:end], start, job.pages)
        job.prefilled = end
        if end == job.start:
            self.pool.remember(job.prompt[: job.start], job.pages)
        return end - start

    def _join(self, job: Job) -> bool:
        """Give rows to as many candidates as there is room for; True when all have joined."""
        request, own = job.request, self._own_pages(job)
        wanted = len(request.seeds) - job.joined
        count = min(wanted, self._rows.count - len(self._live), self.pool.available // own)
        if count > 0:
            shared = job.pages[: job.start // self.pool.size]
            tail = job.prompt[job.start :]
            stop_ids = self.model.config.eos_token_ids if request.stop_ids is None else request.stop_ids
            taken = self.pool.take(own * count)
            pages = [taken[i * own : (i + 1) * own] for i in range(count)]
            if job.start % self.pool.size:
                self.pool.copy(job.pages[-1], [p[0] for p in pages])
            for _ in range(count):
                self.pool.share(shared)
            first = len(self._live)
            numbers = range(job.joined, job.joined + count)
            self._rows.put(
                range(first, first + count),
                [
                    NewRow(
                        job.start,
                        tail,
                        job.limit,
                        request.seeds[i],
                        request.temperatures[i],
                        request.options,
                        stop_ids,
                    )
                    for i in numbers
                ],
            )
            tables = uploaded([shared + p for p in pages], self._table.device)
            self._table[first : first + count, : tables.shape[1]] = tables
            left = self._passes_left(job, self.size - len(tail))
            for place, (number, mine) in enumerate(zip(numbers, pages, strict=True), first):
                self._live.append(
                    _Live(job, number, place, shared + mine, job.start, next(self._orders), left)
                )
            job.joined += count
        if job.joined < len(request.seeds):
            return False
        self.pool.give_back(job.pages)
        job.pages = []
        return True

    def _passes_left(self, job: Job, masks: int) -> int | None:
        options = job.request.options
        if options.strategy not in ("sequential", "low_confidence_static"):
            return None
        return steps_needed(self.size, options.steps or self.size, masks)

    # Passes

    def _pause(self) -> None:
        """On a slow device only the rows of the highest priority go on. A GPU reads the weights for all in one go."""
        if self._static:
            return
        highest = max((row.job.priority for row in self._live), default=0)
        for row in self._live:
            if row.paused != (row.job.priority < highest):
                row.paused = not row.paused
                self._rows.active[row.place] = 0 if row.paused else 1

    def _launch(self) -> _Pending:
        rows = list(self._live)
        shape = self._shape(rows)
        self._passes.run(shape)
        for row in rows:
            if row.left is not None and not row.paused:
                row.left -= 1
                row.fresh = row.left == 0
                if row.fresh:
                    row.left = self._passes_left(row.job, self.size)
        record = self._rows.record[: len(rows)]
        if not record.is_cuda:
            return _Pending(record.clone(), None, rows)
        host = torch.empty(record.shape, dtype=record.dtype, pin_memory=True)
        host.copy_(record, non_blocking=True)
        ready = torch.cuda.Event()
        ready.record()
        return _Pending(host, ready, rows)

    def _shape(self, rows: list[_Live]) -> Shape:
        options = {id(row.job): row.job.request for row in rows}.values()
        needs = Needs(
            sampling=any(max(r.temperatures) > 0 for r in options),
            filters=any(r.options.top_k > 0 or r.options.top_p < 1 for r in options),
            entropy=any(r.options.strategy == "entropy_bounded" for r in options),
        )
        # A row may be one block further than the host has read.
        ahead = 2 * self.size if self._static else self.size
        pages = min(self.pool.pages_of(max(row.start for row in rows) + ahead), self._table.shape[1])
        if not self._static:
            state = self._rows.first(len(rows))
            fold = bool((state.fresh * state.active).any())
            return Shape(len(rows), fold, pages, needs)
        fold = any(row.left is None or row.fresh for row in rows)
        count = next((c for c in _ROW_COUNTS if c >= len(rows)), self._rows.count)
        if self._passes.any_length:
            return Shape(min(count, self._rows.count), fold, self._table.shape[1], needs)
        # Sizes 1, 2, 3, 4, 6, 8, 12, ...: few programs, and at most half of a pass for nothing.
        step = 1 << max(0, (pages - 1).bit_length() - 2)
        pages = min(-(-pages // step) * step, self._table.shape[1])
        return Shape(min(count, self._rows.count), fold, pages, needs)

    def _collect(self, pending: _Pending) -> list[Event]:
        """Hand on the blocks that are complete and drop the rows that are done."""
        if pending.ready is not None:
            pending.ready.synchronize()
        events: list[Event] = []
        counted: set[int] = set()
        for row, line in zip(pending.rows, pending.record.tolist(), strict=True):
            if row.gone or not line[columns.LIVE]:
                continue
            job = row.job
            if id(job) not in counted:
                counted.add(id(job))
                job.forward_count += 1
            if line[columns.BROKEN]:
                error = DecodeError(
                    "the network returned not-a-number logits: are the weights damaged, or fp16 too narrow?"
                )
                self._drop_job(job, broken=True)
                events = [e for e in events if e.job is not job] + [JobFailed(job, error)]
            elif line[columns.COMPLETE]:
                events.append(self._complete(row, line))
        return events

    def _complete(self, row: _Live, line: list[int]) -> BlockEvent:
        job, reply = row.job, row.job.replies[row.candidate]
        first = max(len(job.prompt) - row.start, 0)
        end, body = line[columns.END], columns.HEAD
        tokens = line[body + first : body + end]
        steps = line[body + self.size + first : body + self.size + end]
        reply.tokens += tokens
        reply.step_map += steps
        finished = bool(line[columns.FINISHED])
        row.start += self.size
        if finished:
            reply.stopped = bool(line[columns.STOPPED])
            self._leave(row)
        return BlockEvent(job, row.candidate, tokens, steps, finished)

    # Leaving

    def _leave(self, row: _Live, broken: bool = False) -> None:
        """The last row takes the place of one that has finished."""
        request, reply = row.job.request, row.job.replies[row.candidate]
        if request.keep and not broken:
            # The keys and values of its last block were never committed.
            written = [*request.prompt, *reply.tokens][: max(0, row.start - self.size)]
            self.pool.remember(written, row.pages)
        last = self._live.pop()
        if last is row:
            self._rows.active[row.place] = 0
        else:
            self._rows.move(last.place, row.place)
            self._table[row.place].copy_(self._table[last.place])
            last.place = row.place
            self._live[row.place] = last
        self.pool.give_back(row.pages, broken)
        row.gone = True
        row.job.unfinished -= 1

    def _drop_job(self, job: Job, broken: bool) -> None:
        if job in self._waiting:
            self._waiting.remove(job)
        for row in [row for row in self._live if row.job is job]:
            self._leave(row, broken)
        self.pool.give_back(job.pages, broken)
        job.pages = []

    def _fail(self, job: Job, error: Exception) -> None:
        self._drop_job(job, broken=False)
        self._failed.append(JobFailed(job, error))


def _place_of(model: SdarModel) -> tuple[object, ...]:
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    return embedding.device, embedding.dtype, embedding.data_ptr(), head.data_ptr()


def decode_all(
    decoder: BatchDecoder, jobs: list[Job], on_event: Callable[[BlockEvent], None] | None = None
) -> None:
    """Step until every one of ``jobs`` is finished. Raises the error of one that fails."""
    waiting = {id(job) for job in jobs}
    while any(job.unfinished for job in jobs):
        for event in decoder.step():
            if isinstance(event, JobFailed):
                if id(event.job) in waiting:
                    raise event.error
            elif on_event is not None:
                on_event(event)
