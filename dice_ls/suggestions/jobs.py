"""Jobs: one request for faster versions of one hole, in the background, one at a time, cancellable."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dice_engine.source.hole import Hole
from lsprotocol import types

from dice_ls.documents import Document
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import HoleId, Record, context_digest

# The pipeline is imported where it is used: it brings the parsers and the engine's client, which the start can spare.
if TYPE_CHECKING:
    from dice_ls.language_server import DiceServer
    from dice_ls.suggestions.requests import Request

log = logging.getLogger(__name__)

_PROGRESS_EVERY = 0.25
"""Seconds between progress reports that say nothing but more tokens."""


@dataclass
class Job:
    """A running or waiting request. ``token`` is its work-done progress token at the client, if shown there."""

    uri: str
    hole_id: HoleId
    record: Record
    request: Request
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    shown: bool = False
    reported: tuple[str, int, int] = ("", 0, 0)
    """State, candidates decoded and judged in the last progress report, which was sent at ``reported_at``."""
    reported_at: float = 0.0
    why_cancelled: str = "cancelled"
    task: asyncio.Task[None] | None = None

    @property
    def token(self) -> str:
        return f"dice-{self.id}"


class JobQueue:
    """All jobs of this server. Nothing here blocks: work is in the engine's processes."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._jobs: dict[str, Job] = {}
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def submit(self, document: Document, hole_id: HoleId, hole: Hole) -> Job:
        """Start (or queue) a job for a hole of the document's present text; an active one for it is returned."""
        for job in self._jobs.values():
            if job.uri == document.uri and job.hole_id == hole_id:
                return job
        from dice_ls.suggestions.requests import Request

        settings = self._server.settings
        request = Request(
            path=document.path,
            text=document.text,
            hole=hole,
            candidates=settings.candidates,
            device=settings.device,
            checkpoint=settings.checkpoint,
        )
        record = Record(hole_id, context_digest(document.text, hole))
        self._server.store.put(document.uri, record)
        job = Job(document.uri, hole_id, record, request)
        self._jobs[job.id] = job
        job.task = asyncio.ensure_future(self._run(job))
        self._changed(job)
        return job

    def cancel(self, job_id: str, why: str = "cancelled") -> bool:
        """Cancel one job; the engine stops decoding and checking for it. False when there is no such job."""
        job = self._jobs.get(job_id)
        if job is None or job.task is None:
            return False
        job.why_cancelled = why
        job.task.cancel()
        return True

    def cancel_hole(self, uri: str, hole_id: HoleId) -> int:
        """Cancel the jobs of one hole; returns how many there were."""
        jobs = [job for job in self._jobs.values() if job.uri == uri and job.hole_id == hole_id]
        return sum(self.cancel(job.id) for job in jobs)

    def cancel_all(self, why: str = "cancelled") -> int:
        return sum(self.cancel(job_id, why) for job_id in list(self._jobs))

    def cancel_token(self, token: str | int) -> None:
        for job in list(self._jobs.values()):
            if job.token == token:
                self.cancel(job.id)

    def cancel_document(self, uri: str) -> None:
        for job in list(self._jobs.values()):
            if job.uri == uri:
                self.cancel(job.id, "its document was closed")

    async def cancel_edited(self, document: Document) -> None:
        """Cancel jobs whose hole has another text now: their results could not be offered.

        A hole that is merely not found (the buffer is broken while someone types) keeps its job.
        """
        jobs = [job for job in self._jobs.values() if job.uri == document.uri]
        if not jobs:
            return
        present = {hole_id for hole_id, _ in await document.holes()}
        named = {(hole_id.kind, hole_id.name) for hole_id in present}
        for job in jobs:
            if job.hole_id not in present and (job.hole_id.kind, job.hole_id.name) in named:
                self.cancel(job.id, "its code was edited")

    async def stop(self) -> None:
        """Cancel everything and wait until the engine was told."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        self.cancel_all("the server stops")
        if tasks:
            await asyncio.wait(tasks, timeout=2)

    async def _run(self, job: Job) -> None:
        from dice_ls.suggestions.pipeline import EngineError, NotCheckable, suggest

        server, record = self._server, job.record
        try:
            await self._begin(job)
            async with self._turn:
                record.state = "starting"
                server.status.update(state="starting")
                self._changed(job)
                client = await server.engine.client()
                server.status.update(state="decoding", device=server.engine.device, message="")
                async with aclosing(suggest(client, job.request, record)) as changes:
                    async for _ in changes:
                        server.status.update(state="checking" if record.state == "checking" else "decoding")
                        self._changed(job)
            record.state = "done"
            record.message = wording.summary(record)
            server.show(record.message)
            for line in wording.reasons(record):
                server.note(f"`{record.hole.name}`: {line}")
        except asyncio.CancelledError:
            record.state, record.message = "cancelled", f"`{record.hole.name}`: {job.why_cancelled}"
            server.note(record.message)
        except NotCheckable as error:
            self._failed(job, str(error), types.MessageType.Warning)
        except EngineError as error:
            self._failed(job, str(error), types.MessageType.Error)
            server.status.update(state="unavailable", message=str(error))
        except Exception as error:
            log.exception("job %s failed", job.id)
            self._failed(job, f"{type(error).__name__}: {error}", types.MessageType.Error)
        finally:
            self._jobs.pop(job.id, None)
            self._end(job)

    def _failed(self, job: Job, reason: str, kind: types.MessageType) -> None:
        job.record.state, job.record.message = "failed", f"`{job.record.hole.name}`: {reason}"
        self._server.show(job.record.message, kind)

    async def _begin(self, job: Job) -> None:
        """Ask the client for a progress bar; one that refuses gets none."""
        if not self._server.supports("window.work_done_progress"):
            return
        progress = self._server.work_done_progress
        try:
            await asyncio.wait_for(progress.create_async(job.token), timeout=5)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.info("the client shows no progress for job %s", job.id)
            return
        job.shown = True
        title = f"DICE: faster `{job.record.hole.name}`"
        begin = types.WorkDoneProgressBegin(title, cancellable=True, message=wording.progress(job.record))
        progress.begin(job.token, begin)

    def _changed(self, job: Job) -> None:
        server, record = self._server, job.record
        news = (record.state, record.decoded, record.judged)
        now = time.monotonic()
        if job.shown and (news != job.reported or now - job.reported_at >= _PROGRESS_EVERY):
            job.reported, job.reported_at = news, now
            percentage = None
            if record.expected:
                percentage = min(100, 50 * (record.decoded + record.judged) // record.expected)
            report = types.WorkDoneProgressReport(message=wording.progress(record), percentage=percentage)
            server.work_done_progress.report(job.token, report)
        server.status.update(queue=len(self._jobs))
        server.refresh_lenses()

    def _end(self, job: Job) -> None:
        server = self._server
        if job.shown:
            server.work_done_progress.end(job.token, types.WorkDoneProgressEnd(message=job.record.message))
            server.work_done_progress.tokens.pop(job.token, None)
        server.status.update(queue=len(self._jobs))
        if not self._jobs and server.status.current.state != "unavailable":
            server.status.update(state="idle")
        server.refresh_lenses()
