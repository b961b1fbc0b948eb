"""Diagnostics for mistakes in @dice annotations, checked a moment after the last change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lsprotocol import types

from dice_ls.documents import Document
from dice_ls.language_server import DiceServer
from dice_ls.positions import units

if TYPE_CHECKING:
    from dice_engine.source.annotation import AnnotationError

log = logging.getLogger(__name__)


class Later:
    """Debounced checks by document: a new change puts the check off."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, uri: str, delay: float) -> None:
        """Check ``uri`` after ``delay`` seconds without another call."""
        self.forget(uri)
        loop = asyncio.get_running_loop()
        self._timers[unquote(uri)] = loop.call_later(delay, self._start, uri)

    def forget(self, uri: str) -> None:
        timer = self._timers.pop(unquote(uri), None)
        if timer is not None:
            timer.cancel()

    def _start(self, uri: str) -> None:
        self._timers.pop(unquote(uri), None)
        task = asyncio.ensure_future(self._publish(uri))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, uri: str) -> None:
        document = self._server.documents.get(uri)
        if document is None:
            return
        version, text = document.version, document.text
        errors = await asyncio.to_thread(_errors, text, document.path)
        if version == document.version and self._server.documents.get(uri) is document:
            found = [_diagnostic(document, error) for error in errors]
            self._server.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(document.uri, found, document.version)
            )
        await self._server.jobs.cancel_edited(document)


def _errors(text: str, path: str) -> list[AnnotationError]:
    from dice_engine.source.holes import UnsupportedFile, find_annotation_errors

    try:
        return find_annotation_errors(text, path)
    except UnsupportedFile:
        return []
    except Exception:
        log.exception("cannot read the annotations of %s", path)
        return []


def _diagnostic(document: Document, error: AnnotationError) -> types.Diagnostic:
    """A diagnostic on the mistaken word."""
    line = document.positions.line(error.line)
    start, end = (units(line[:column], document.encoding) for column in (error.column, error.end_column))
    place = types.Range(types.Position(error.line, start), types.Position(error.line, end))
    return types.Diagnostic(place, error.message, severity=types.DiagnosticSeverity.Error, source="dice")
