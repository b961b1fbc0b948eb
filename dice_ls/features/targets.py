"""Which code a request means: by the identity that an earlier answer carried, by a cursor, or by a selection."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dice_engine.source.hole import Hole, HoleKind
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from dice_ls.documents import Document
from dice_ls.language_server import DiceServer
from dice_ls.suggestions.store import HoleId

KERNELS: tuple[HoleKind, ...] = ("kernel_body", "selection")
SOURCES: tuple[HoleKind, ...] = ("kernel_body", "selection", "load_inline_core")
ANY: tuple[HoleKind, ...] = (*SOURCES, "module")
_MOST = 2**31 - 1
"""The largest number of a position in the protocol."""


async def hole_at_range(
    document: Document, where: types.Range, kinds: Collection[HoleKind] = ANY
) -> tuple[HoleId, Hole] | None:
    """The hole that a cursor or selection means: at its start, else at its end."""
    from dice_engine.source.holes import hole_at

    pairs = await document.holes()
    holes = [hole for _, hole in pairs if hole.kind in kinds]
    for position in (where.start, where.end):
        hole = hole_at(holes, document.positions.offset(position))
        if hole is not None:
            return next(pair for pair in pairs if pair[1] is hole)
    return None


async def find(document: Document, hole_id: str) -> tuple[HoleId, Hole] | None:
    """The hole whose identity (as text) is ``hole_id`` in the document's present text."""
    return next((pair for pair in await document.holes() if str(pair[0]) == hole_id), None)


async def target(
    ls: DiceServer, arguments: tuple[Any, ...], kinds: Collection[HoleKind] = ANY
) -> tuple[Document, HoleId, Hole]:
    """The hole that a command's argument names. Raises JsonRpcInvalidParams with what is wrong with it."""
    document, where = _document(ls, arguments)
    name, at = where.get("hole"), where.get("position")
    if isinstance(name, str):
        found = await find(document, name)
        if found is None:
            raise JsonRpcInvalidParams("the code was edited since this was offered; ask again")
        return document, *found
    position = _position(at)
    if position is None:
        raise JsonRpcInvalidParams("expected `hole` (text) or `position` ({line, character}) beside `uri`")
    found = await hole_at_range(document, types.Range(position, position), kinds)
    if found is None:
        what = "module" if kinds == ("module",) else "kernel" if "module" not in kinds else "kernel or module"
        raise JsonRpcInvalidParams(f"there is no {what} at this position")
    return document, *found


def selection(ls: DiceServer, arguments: tuple[Any, ...]) -> tuple[Document, types.Range]:
    """The range that a command's argument selects. Raises JsonRpcInvalidParams."""
    document, where = _document(ls, arguments)
    area = where.get("range")
    ends = [_position(area.get(end)) for end in ("start", "end")] if isinstance(area, dict) else [None]
    if None in ends:
        raise JsonRpcInvalidParams("expected `range` ({start, end}) beside `uri`")
    start, end = ends
    assert start is not None and end is not None
    return document, types.Range(start, end)


def _document(ls: DiceServer, arguments: tuple[Any, ...]) -> tuple[Document, dict[str, Any]]:
    if len(arguments) != 1 or not isinstance(arguments[0], dict):
        raise JsonRpcInvalidParams("expected one object with `uri` and `hole`, `position` or `range`")
    uri = arguments[0].get("uri")
    document = ls.documents.get(uri) if isinstance(uri, str) else None
    if document is None:
        raise JsonRpcInvalidParams(f"no open document {uri!r}")
    return document, arguments[0]


def _position(at: Any) -> types.Position | None:
    if not isinstance(at, dict):
        return None
    line, character = at.get("line"), at.get("character")
    if type(line) is not int or type(character) is not int:
        return None
    return (
        types.Position(line, character)
        if min(line, character) >= 0 and max(line, character) <= _MOST
        else None
    )
