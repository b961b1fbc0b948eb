"""Diagnostics for mistakes in @dice annotations, checked a moment after the last change."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import unquote

from lsprotocol import types

from dice_ls.documents import Document
from dice_ls.language_server import DiceServer
from dice_ls.positions import units

log = logging.getLogger(__name__)


class Later:
    """Debounced checks by document: a new change puts the check off."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def check(self, uri: str, delay: float) -> None:
        """Check ``uri`` after ``delay`` seconds without another call."""
        self.forget(uri)
        loop = asyncio.get_running_loop()
        self._timers[unquote(uri)] = loop.call_later(delay, self._publish, uri)

    def forget(self, uri: str) -> None:
        timer = self._timers.pop(unquote(uri), None)
        if timer is not None:
            timer.cancel()

    def _publish(self, uri: str) -> None:
        self._timers.pop(unquote(uri), None)
        document = self._server.documents.get(uri)
        if document is None:
            return
        self._server.jobs.cancel_edited(document)
        self._server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(document.uri, diagnose(document), document.version)
        )


def diagnose(document: Document) -> list[types.Diagnostic]:
    """One diagnostic for each mistake, on the mistaken word."""
    from dice_engine.source.holes import UnsupportedFile, find_annotation_errors

    try:
        errors = find_annotation_errors(document.text, document.path)
    except UnsupportedFile:
        return []
    except Exception:
        log.exception("cannot read the annotations of %s", document.uri)
        return []
    found = []
    for error in errors:
        line = document.positions.line(error.line)
        start, end = (units(line[:column], document.encoding) for column in (error.column, error.end_column))
        place = types.Range(types.Position(error.line, start), types.Position(error.line, end))
        severity = types.DiagnosticSeverity.Error
        found.append(types.Diagnostic(place, error.message, severity=severity, source="dice"))
    return found
