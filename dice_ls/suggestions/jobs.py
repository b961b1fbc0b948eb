"""Jobs: one request for faster versions of one hole, in the background, one at a time, cancellable."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from dice_engine.source.hole import Hole
from lsprotocol import types

from dice_ls import power
from dice_ls.documents import Document
from dice_ls.progress import ProgressBar
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import HoleId, Record, context_digest

# The pipeline is imported where it is used: it brings the parsers and the engine's client, which the start can spare.
if TYPE_CHECKING:
    from dice_ls.language_server import DiceServer
    from dice_ls.suggestions.requests import Request

log = logging.getLogger(__name__)

_PROGRESS_EVERY = 0.25
"""Seconds between progress reports that say nothing but more tokens."""
_LOOK_AGAIN = 2.0
"""Seconds until a job that nobody asked for looks again whether the machine is free."""
_PATIENCE = 20.0
"""Seconds it waits for a busy machine; for mains power it waits as long as it takes."""


@dataclass(eq=False)
class Job:
    """A running or waiting request. ``background``: nobody asked for it by hand, so it leaves a busy machine alone."""

    uri: str
    hole_id: HoleId
    record: Record
    request: Request
    background: bool
    bar: ProgressBar
    reported: tuple[str, int, int] = ("", 0, 0)
    """State, candidates decoded and judged in the last progress report, which was sent at ``reported_at``."""
    reported_at: float = 0.0
    cancelled: str = ""
    """Why it was cancelled."""
    task: asyncio.Task[None] | None = None
    attempt: asyncio.Task[None] | None = field(default=None, repr=False)
    """The work itself; a pause ends it and a later one begins anew."""
    interrupted: bool = False
    """Whether it was a pause that ended the work: at the end of a session everything is cancelled as well."""


class JobQueue:
    """All jobs of this server, whatever workspace they belong to. Nothing here blocks: work is in the engine."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._jobs: list[Job] = []
        self._turn = asyncio.Lock()
        self._going = asyncio.Event()
        self._going.set()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def paused(self) -> bool:
        return not self._going.is_set()

    def submit(self, document: Document, hole_id: HoleId, hole: Hole, background: bool = False) -> Job:
        """Start (or queue) a job for a hole of the document's present text; an active one for it is returned."""
        for job in self._jobs:
            if job.uri == document.uri and job.hole_id == hole_id:
                return job
        from dice_ls.suggestions.requests import Request

        settings = self._server.settings
        text, whole = document.whole(hole)
        request = Request(
            path=document.path,
            text=text,
            hole=whole,
            candidates=settings.candidates,
            device=settings.device,
            checkpoint=settings.checkpoint,
            project=self._server.project_of(document),
        )
        context = context_digest(document.text, hole)
        record = Record(hole_id, context, plan=hole.plan, checkpoint=settings.checkpoint)
        self._server.store.put(document.uri, record)
        bar = ProgressBar(self._server, lambda: self.cancel(job))
        job = Job(document.uri, hole_id, record, request, background, bar)
        self._jobs.append(job)
        job.task = asyncio.ensure_future(self._run(job))
        self._changed(job)
        return job

    def cancel(self, job: Job, why: str = "cancelled") -> bool:
        """Cancel one job; the engine stops decoding and checking for it. False when it has ended already."""
        if job not in self._jobs or job.task is None:
            return False
        job.cancelled = job.cancelled or why
        job.task.cancel()
        return True

    def cancel_hole(self, uri: str, hole_id: HoleId) -> int:
        """Cancel the jobs of one hole; returns how many there were."""
        return sum(self.cancel(job) for job in self._of(uri) if job.hole_id == hole_id)

    def cancel_all(self, why: str = "cancelled") -> int:
        return sum(self.cancel(job, why) for job in list(self._jobs))

    def cancel_document(self, uri: str, why: str = "its document was closed") -> None:
        for job in self._of(uri):
            self.cancel(job, why)

    async def cancel_edited(self, document: Document) -> None:
        """Cancel jobs whose hole has another text now: their results could not be offered.

        A hole that is merely not found (the buffer is broken while someone types) keeps its job.
        """
        if not self._of(document.uri):
            return
        present = {hole_id for hole_id, _ in await document.holes()}
        named = {(hole_id.kind, hole_id.name) for hole_id in present}
        for job in self._of(document.uri):
            if job.hole_id not in present and (job.hole_id.kind, job.hole_id.name) in named:
                self.cancel(job, "its code was edited")

    def pause(self) -> None:
        """Nothing starts any more; what runs is stopped in the engine and begins anew after :meth:`resume`."""
        self._going.clear()
        self.interrupt()
        self._server.status.update(state="paused", running="", waiting_for="")

    def resume(self) -> None:
        self._going.set()
        self._server.status.update(state="idle")

    def interrupt(self) -> None:
        """Stop what runs now; it begins anew when its turn comes."""
        for job in self._jobs:
            if job.attempt is not None:
                job.interrupted = True
                job.attempt.cancel()

    async def stop(self) -> None:
        """Cancel everything and wait until the engine was told."""
        tasks = [job.task for job in self._jobs if job.task is not None]
        self.cancel_all("the server stops")
        if tasks:
            await asyncio.wait(tasks, timeout=2)

    def _of(self, uri: str) -> list[Job]:
        return [job for job in self._jobs if job.uri == uri]

    async def _run(self, job: Job) -> None:
        from dice_ls.suggestions.pipeline import EngineError, NotCheckable

        server, record = self._server, job.record
        try:
            await job.bar.begin(f"DICE: faster `{record.hole.name}`", wording.progress(record))
            await self._free_machine(job)
            async with self._turn:
                await self._attempts(job)
            record.state, record.message = "done", wording.summary(record)
            if not job.background or record.offers():
                server.show(record.message)
            for line in wording.reasons(record):
                server.note(f"`{record.hole.name}`: {line}")
        except asyncio.CancelledError:
            record.state = "cancelled"
            record.message = f"`{record.hole.name}`: {job.cancelled or 'cancelled'}"
            server.note(record.message)
        except NotCheckable as error:
            self._failed(job, str(error), types.MessageType.Warning)
        except EngineError as error:
            self._failed(job, str(error), types.MessageType.Error)
            server.status.update(state="unavailable", message=str(error), engine=server.engine.current())
        except Exception as error:
            log.exception("a job for %s failed", record.hole)
            self._failed(job, f"{type(error).__name__}: {error}", types.MessageType.Error)
        finally:
            self._jobs.remove(job)
            self._end(job)

    async def _free_machine(self, job: Job) -> None:
        """Work that nobody waits for leaves a machine alone that runs on battery or is busy."""
        until = time.monotonic() + _PATIENCE
        while job.background:
            if power.on_battery() and not self._server.settings.workOnBattery:
                reason = "the power plug"
            elif power.busy() and time.monotonic() < until:
                reason = "other programs to finish"
            else:
                return
            self._server.status.update(waiting_for=reason)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _attempts(self, job: Job) -> None:
        """The work, again from its beginning after each pause."""
        while True:
            await self._going.wait()
            job.interrupted = False
            job.attempt = asyncio.ensure_future(self._attempt(job))
            try:
                await job.attempt
                return
            except asyncio.CancelledError:
                if job.cancelled or not job.interrupted or not job.attempt.cancelled():
                    job.attempt.cancel()
                    with suppress(asyncio.CancelledError):
                        await job.attempt
                    raise
                job.record.restart()
                self._changed(job)
            finally:
                job.attempt = None

    async def _attempt(self, job: Job) -> None:
        from dice_ls.suggestions.pipeline import EngineError, suggest

        server, record = self._server, job.record
        if not server.engine.connected:
            record.state = "starting"
            self._changed(job)
        client = await server.engine.client()
        record.loaded = record.checkpoint is None and bool(server.engine.status["models"])
        server.status.update(device=server.engine.device, engine=server.engine.status, message="")
        async with aclosing(suggest(client, job.request, record)) as changes:
            async for _ in changes:
                self._changed(job)
        with suppress(EngineError):
            server.status.update(engine=await server.engine.refresh())

    def _failed(self, job: Job, reason: str, kind: types.MessageType) -> None:
        job.record.state, job.record.message = "failed", f"`{job.record.hole.name}`: {reason}"
        self._server.show(job.record.message, kind)

    def _changed(self, job: Job) -> None:
        server, record = self._server, job.record
        news = (record.state, record.decoded, record.judged)
        now = time.monotonic()
        if news != job.reported or now - job.reported_at >= _PROGRESS_EVERY:
            job.reported, job.reported_at = news, now
            percentage = None
            if record.expected:
                percentage = min(100, 50 * (record.decoded + record.judged) // record.expected)
            job.bar.report(wording.progress(record), percentage)
        server.status.update(queue=len(self._jobs))
        if record.state in ("starting", "decoding", "checking"):
            waiting = wording.waiting_for(record)
            server.status.update(state=record.state, running=record.hole.name, waiting_for=waiting)
        server.refresh_lenses()

    def _end(self, job: Job) -> None:
        server = self._server
        job.record.when = datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds")
        job.bar.end(job.record.message)
        server.status.update(queue=len(self._jobs), running="", waiting_for="")
        if not self._jobs and not self.paused and server.status.current["state"] != "unavailable":
            server.status.update(state="idle")
        server.refresh_lenses()
