"""Open documents and the holes in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from dice_engine.source.hole import Hole, surrounded, within
from dice_engine.source.lines import to_bytes, to_text
from lsprotocol import types

from dice_ls.positions import Encoding, Positions
from dice_ls.suggestions.store import HoleId, identify
from dice_ls.uris import path_of

if TYPE_CHECKING:
    from dice_engine.source.project import Project

log = logging.getLogger(__name__)
_SUFFIX_OF_LANGUAGE = {"cuda": ".cu", "cuda-cpp": ".cu", "cuda-c++": ".cu", "python": ".py"}
_SUFFIXES = (".cu", ".cuh", ".py")


@dataclass(eq=False)
class Mark:
    """Bytes of a document that keep their text: edits elsewhere move them, an edit inside ends them."""

    start: int
    end: int
    alive: bool = True


class Document:
    """One open document: the client's URI as it was sent, its version and text. ``positions`` and ``holes`` follow."""

    def __init__(self, uri: str, text: str, version: int, language: str, encoding: Encoding) -> None:
        self.uri = uri
        self.version = version
        self.language = language
        self.encoding: Encoding = encoding
        self.opened_text = text
        self.saved: set[HoleId] = set()
        """The holes that the file had when it was opened or last saved."""
        self.project: Callable[[], Project] | None = None
        """What the workspace says about its sources."""
        self.around: Callable[[], tuple[str, str]] | None = None
        """For a notebook's cell: what the cells before and after it define."""
        self._text: str | None = text
        self._positions: Positions | None = None
        self._found: list[Hole] | None = None
        self._pairs: list[tuple[HoleId, Hole]] | None = None
        self._exact = False
        """Whether plans, too, are those of the present text."""
        self._search: asyncio.Future[None] | None = None
        self._edits: list[tuple[int, int, int, bytes]] | None = []
        """Start, end, new size and new text of the edits since the search began; None: more than can be followed."""
        self._marks: list[Mark] = []
        self._selections: list[Mark] = []
        """The selections that were asked for."""

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = to_text(self.positions.data)
        return self._text

    @property
    def path(self) -> str:
        """The file's path, or for a buffer without one a name whose suffix fits its language."""
        path = path_of(self.uri) or unquote(self.uri.rpartition(":")[2])
        if PurePosixPath(path).suffix in _SUFFIXES:
            return path
        return path + _SUFFIX_OF_LANGUAGE.get(self.language, "")

    @property
    def positions(self) -> Positions:
        if self._positions is None:
            self._positions = Positions(self._text or "", self.encoding)
        return self._positions

    async def holes(self) -> list[tuple[HoleId, Hole]]:
        """The holes of the present text with their identities, in document order.

        After a key they are there at once, with plans as before it; :meth:`settled` waits for the plans. Reading the
        whole text is done in a thread, and what is typed meanwhile is followed.
        """
        while self._pairs is None:
            await self._searched()
        return self._pairs

    async def settled(self) -> list[tuple[HoleId, Hole]]:
        """As :meth:`holes`, with the plans that the present text gives."""
        while self._pairs is None or not self._exact:
            await self._searched()
        return self._pairs

    async def _searched(self) -> None:
        if self._search is None:
            self._search = asyncio.ensure_future(self._find_holes())
        await asyncio.shield(self._search)

    async def _find_holes(self) -> None:
        self._edits = []
        try:
            before, after = self.around() if self.around is not None else ("", "")
            found: list[Hole] | None = await asyncio.to_thread(
                _find, self.text, self.path, before, after, self.project
            )
        finally:
            self._search = None
        edits, self._edits = self._edits, []
        if edits is None:
            return
        from dice_engine.source.incremental import edited

        for start, end, size, data in edits:
            found = edited(found, data, start, end, size) if found is not None else None
        self._take(found, exact=not edits)

    def _take(self, found: list[Hole] | None, exact: bool = False) -> None:
        self._found, self._exact, self._pairs = found, exact, None
        if found is not None:
            self._pairs = identify(found + self._selected(found))

    def _selected(self, found: list[Hole]) -> list[Hole]:
        if not self._selections:
            return []
        from dice_engine.source.selection import select

        holes = [select(found, mark.start, mark.end) for mark in self._selections]
        return [hole for hole in holes if hole is not None and hole.kind == "selection"]

    def surroundings_changed(self) -> None:
        """Another cell of the notebook was edited: what is around this one may mean other plans."""
        self._edits = None
        self._take(None)

    def outdated(self) -> None:
        """A file that the plans may come through was written."""
        self._exact = False
        if self._search is not None:
            self._edits = None

    def whole(self, hole: Hole) -> tuple[str, Hole]:
        """The text that a check runs, and the hole in it: the document, with what is around a notebook's cell."""
        if self.around is None:
            return self.text, hole
        before, after = self.around()
        return before + self.text + after, surrounded(hole, to_bytes(before), to_bytes(after))

    async def select(self, area: types.Range) -> tuple[HoleId, Hole] | None:
        """The hole of the statements that ``area`` touches, one of :meth:`holes` from now on; None outside kernels."""
        from dice_engine.source.selection import select

        start, end = self.positions.offset(area.start), self.positions.offset(area.end)
        pairs = await self.holes()
        hole = select((hole for _, hole in pairs), start, max(start, end))
        if hole is None:
            return None
        known = [(mark.start, mark.end) for mark in self._selections if mark.alive]
        if hole.kind == "selection" and (hole.start_byte, hole.end_byte) not in known:
            self._selections.append(self.mark(hole.start_byte, hole.end_byte))
            self._take(self._found, self._exact)
        places = {(hole.kind, hole.start_byte, hole.end_byte)}
        return next(
            (
                pair
                for pair in await self.holes()
                if (pair[1].kind, pair[1].start_byte, pair[1].end_byte) in places
            ),
            None,
        )

    def change(self, changes: list[types.TextDocumentContentChangeEvent], version: int) -> None:
        """Apply the client's changes in their order; positions outside the text are clamped."""
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                start = self.positions.offset(change.range.start)
                end = max(start, self.positions.offset(change.range.end))
                self._edit(start, end, to_bytes(change.text))
            else:
                self._move_marks(0, len(self.positions.data), 0)
                self._text, self._positions, self._edits = change.text, None, None
                self._take(None)
        self.version = version

    def _edit(self, start: int, end: int, text: bytes) -> None:
        self._move_marks(start, end, len(text))
        self._positions = self.positions.edited(start, end, text)
        self._text = None
        data = self._positions.data
        if self._search is not None and self._edits is not None:
            self._edits.append((start, end, len(text), data))
        found, exact = None, False
        if self._found is not None and self.path.endswith((".cu", ".cuh")):
            from dice_engine.source.incremental import edited, same_plans

            before = self._found
            found = edited(before, data, start, end, len(text))
            if found is not None and same_plans(before, found, start, end, len(text)):
                exact = self._exact
        self._take(found, exact)

    def mark(self, start: int, end: int) -> Mark:
        """Follow the bytes ``start`` to ``end`` from now on, as long as somebody holds the mark."""
        mark = Mark(start, end)
        self._marks.append(mark)
        return mark

    def _move_marks(self, start: int, end: int, size: int) -> None:
        """The bytes ``start`` to ``end`` become ``size`` bytes."""
        for mark in self._marks:
            if end <= mark.start and (start, end) != (mark.start, mark.end):
                mark.start += size - (end - start)
                mark.end += size - (end - start)
            elif start < mark.end:
                mark.alive = False
        self._marks = [mark for mark in self._marks if mark.alive]
        self._selections = [mark for mark in self._selections if mark.alive]


def _find(
    text: str, path: str, before: str, after: str, project_of: Callable[[], Project] | None
) -> list[Hole]:
    """Holes; none for other languages and for a text that cannot be read at all."""
    from dice_engine.source.holes import UnsupportedFile, find_holes

    try:
        project = project_of() if project_of is not None else None
        if not before and not after:
            return find_holes(text, path, project)
        start = len(to_bytes(before))
        end = start + len(to_bytes(text))
        holes = [within(hole, start, end) for hole in find_holes(before + text + after, path, project)]
        return [hole for hole in holes if hole is not None]
    except UnsupportedFile:
        return []
    except Exception:
        log.exception("cannot read the holes of %s", path)
        return []


class Documents:
    """The open documents, by URI; clients may write one URI in several ways (``c:`` and ``c%3A``)."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self.project_of: Callable[[Document], Project] | None = None
        self._open: dict[str, Document] = {}

    def open(self, item: types.TextDocumentItem) -> Document:
        document = Document(item.uri, item.text, item.version, item.language_id, self.encoding)
        if (project_of := self.project_of) is not None:
            document.project = lambda: project_of(document)
        self._open[unquote(item.uri)] = document
        return document

    def get(self, uri: str) -> Document | None:
        return self._open.get(unquote(uri))

    def close(self, uri: str) -> None:
        self._open.pop(unquote(uri), None)

    def __iter__(self):
        return iter(list(self._open.values()))
