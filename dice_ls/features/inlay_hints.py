"""Inlay hints: what a kernel was measured to take, at its launches. Off unless the setting turns them on."""

from __future__ import annotations

import re

from lsprotocol import types

from dice_ls.documents import Document
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import wording


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def inlay_hint(ls: DiceServer, params: types.InlayHintParams) -> list[types.InlayHint] | None:
        document = ls.documents.get(params.text_document.uri)
        if document is None or not ls.settings.inlayHints:
            return None
        start, end = (
            document.positions.offset(params.range.start),
            document.positions.offset(params.range.end),
        )
        hints = []
        for hole_id, hole in await document.holes():
            record = ls.store.get(document.uri, hole_id)
            measured = wording.measured(record) if record is not None else ""
            if record is None or not measured or hole.kind == "selection":
                continue
            for offset in _launches(document, hole.name):
                if start <= offset <= end:
                    place = document.positions.position(offset)
                    tooltip = wording.hint_tooltip(record)
                    hints.append(types.InlayHint(place, measured, padding_left=True, tooltip=tooltip))
        return hints


def _launches(document: Document, name: str) -> list[int]:
    """Where the launches of a kernel end: right after their ``>>>``."""
    pattern = rb"\b" + re.escape(name.encode()) + rb"\s*(?:<[^;<>]*>\s*)?<<<.*?>>>"
    return [match.end() for match in re.finditer(pattern, document.positions.data, re.DOTALL)]
