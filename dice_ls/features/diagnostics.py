"""Diagnostics: mistakes in @dice annotations, compiler errors of what was saved, disagreements that a check found.

Each has its own moment; the client gets them together. They stay with their text while it moves.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from lsprotocol import types

from dice_ls.documents import Document, Mark
from dice_ls.features import trust
from dice_ls.language_server import DiceServer
from dice_ls.positions import units

if TYPE_CHECKING:
    from dice_engine.source.annotation import AnnotationError
    from dice_engine.source.cuda_texts import CudaText

log = logging.getLogger(__name__)
_KNOWN_ARGUMENT = re.compile(
    r"\d+|true|false|(?:unsigned |signed )?(?:int|long|short|char)|float|double|bool|unsigned|__half|half"
)
"""Template arguments that mean the same everywhere."""
Kind = Literal["annotation", "compiler", "check"]


@dataclass(frozen=True)
class Found:
    """One diagnostic on a stretch of text, which moves with it; an edit in it (or in ``within``) ends it."""

    mark: Mark
    message: str
    severity: types.DiagnosticSeverity
    code: str
    within: Mark | None = None

    @property
    def holds(self) -> bool:
        return self.mark.alive and (self.within is None or self.within.alive)


class Board:
    """What is known of every document, by kind, and when it is looked for."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._annotations: dict[str, list[types.Diagnostic]] = {}
        self._found: dict[str, dict[Kind, list[Found]]] = {}

    def put(self, document: Document, kind: Kind, found: list[Found]) -> None:
        """Replace what is known of one kind, and tell the client."""
        self._found.setdefault(unquote(document.uri), {})[kind] = found
        self._publish(document)

    def kept(self, document: Document, kind: Kind, outside: tuple[int, int]) -> list[Found]:
        """What is known of one kind and lies outside of some bytes."""
        known = self._found.get(unquote(document.uri), {}).get(kind, [])
        return [one for one in known if one.holds and not outside[0] <= one.mark.start < outside[1]]

    def check_annotations(self, uri: str, delay: float) -> None:
        """Look after ``delay`` seconds without another call."""
        self._stop(uri)
        loop = asyncio.get_running_loop()
        self._timers[unquote(uri)] = loop.call_later(delay, self._start, self._look_at_annotations, uri)

    def check_saved(self, uri: str) -> None:
        """Compile what was saved, where that is wanted and allowed."""
        document = self._server.documents.get(uri)
        if document is None or not self._server.settings.diagnosticsOnSave:
            return
        if trust.known(self._server, document):
            self._start(self._compile, uri)

    def forget(self, uri: str) -> None:
        """A document was closed: its diagnostics go."""
        self._stop(uri)
        if any([self._annotations.pop(unquote(uri), None), self._found.pop(unquote(uri), None)]):
            self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _stop(self, uri: str) -> None:
        timer = self._timers.pop(unquote(uri), None)
        if timer is not None:
            timer.cancel()

    def _start(self, work: Callable[[str], Coroutine[Any, Any, None]], uri: str) -> None:
        task = asyncio.ensure_future(work(uri))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_annotations(self, uri: str) -> None:
        document = self._server.documents.get(uri)
        if document is None:
            return
        version, text = document.version, document.text
        errors = await asyncio.to_thread(_annotation_errors, text, document.path)
        if version == document.version and self._server.documents.get(uri) is document:
            self._annotations[unquote(uri)] = [_diagnostic(document, error) for error in errors]
            self._publish(document)
        before = [hole.plan for _, hole in await document.holes()]
        if [hole.plan for _, hole in await document.settled()] != before:
            self._server.refresh_lenses()
        await self._server.jobs.cancel_edited(document)
        gc.collect()

    async def _compile(self, uri: str) -> None:
        document = self._server.documents.get(uri)
        if document is None:
            return
        version = document.version
        found = []
        for text, instances in await asyncio.to_thread(_compiled_texts, document.text, document.path):
            report = await self._server.compiler.check(
                text.value, await self._server.build_flags(document), instances
            )
            if report.error:
                self._server.note(f"{document.path}: not compiled: {report.error}")
            for problem in report.problems:
                place = text.document_range(problem.line, problem.column)
                found.append((place, problem.message, report.backend))
        if version == document.version and self._server.documents.get(uri) is document:
            error = types.DiagnosticSeverity.Error
            self.put(
                document, "compiler", [Found(document.mark(*p), text, error, by) for p, text, by in found]
            )

    def _publish(self, document: Document) -> None:
        found = list(self._annotations.get(unquote(document.uri), ()))
        for one in (one for kind in self._found.get(unquote(document.uri), {}).values() for one in kind):
            if one.holds:
                place = document.positions.range(one.mark.start, one.mark.end)
                found.append(
                    types.Diagnostic(place, one.message, severity=one.severity, code=one.code, source="dice")
                )
        self._server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(document.uri, found, document.version)
        )


def _annotation_errors(text: str, path: str) -> list[AnnotationError]:
    from dice_engine.source.holes import UnsupportedFile, find_annotation_errors

    try:
        return find_annotation_errors(text, path)
    except UnsupportedFile:
        return []
    except Exception:
        log.exception("cannot read the annotations of %s", path)
        return []


def _compiled_texts(text: str, path: str) -> list[tuple[CudaText, list[tuple[str, tuple[str, ...]]]]]:
    """What of a document is compiled, with the kernel templates' arguments that its launches give."""
    from dice_engine.source.cuda import find_kernels
    from dice_engine.source.cuda_texts import cuda_texts
    from dice_engine.source.plans import host_program, instantiations, kernel_plan

    found = []
    for one in cuda_texts(text, path):
        instances: dict[tuple[str, tuple[str, ...]], None] = {}
        try:
            for kernel in find_kernels(one.value):
                if kernel.template_params and kernel.editable:
                    plan = kernel_plan(one.value, kernel.name)
                    if plan.runnable:
                        instances |= dict.fromkeys(instantiations(host_program(one.value), plan))
                    launches = re.findall(rf"\b{kernel.name}\s*<([\w\s,]*)>\s*<<<", one.value)
                    for arguments in (tuple(map(str.strip, each.split(","))) for each in launches):
                        if all(_KNOWN_ARGUMENT.fullmatch(argument) for argument in arguments):
                            instances[(kernel.name, arguments)] = None
        except Exception:
            log.exception("cannot tell the template arguments in %s", path)
        found.append((one, list(instances)))
    return found


def _diagnostic(document: Document, error: AnnotationError) -> types.Diagnostic:
    """A diagnostic on the mistaken word."""
    line = document.positions.line(error.line)
    start, end = (units(line[:column], document.encoding) for column in (error.column, error.end_column))
    place = types.Range(types.Position(error.line, start), types.Position(error.line, end))
    return types.Diagnostic(
        place, error.message, severity=types.DiagnosticSeverity.Error, code="annotation", source="dice"
    )
