"""Evidence on request: hover, and the commands that show how a candidate was tested and how it was decoded."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from dice_engine.source.hole import Hole
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from dice_ls.contract import Evidence
from dice_ls.documents import Document
from dice_ls.features import targets
from dice_ls.language_server import DiceServer
from dice_ls.suggestions.store import HoleId, Record


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(ls: DiceServer, params: types.HoverParams) -> types.Hover | None:
        document = ls.documents.get(params.text_document.uri)
        if document is None:
            return None
        found = await _named(document, params.position)
        if found is None:
            return None
        evidence = await asyncio.to_thread(_evidence, ls, document, *found)
        markdown = ls.prefers_markdown("text_document.hover.content_format")
        text = evidence["markdown"] if markdown else plain(evidence["markdown"])
        kind = types.MarkupKind.Markdown if markdown else types.MarkupKind.PlainText
        return types.Hover(types.MarkupContent(kind, text))

    @server.command("dice.showEvidence")
    async def show_evidence(ls: DiceServer, *arguments: Any) -> Evidence:
        """The evidence; a client that does not draw it itself gets it as a Markdown document too."""
        document, hole_id, hole = await targets.target(ls, arguments)
        evidence = await asyncio.to_thread(_evidence, ls, document, hole_id, hole)
        if arguments[0].get("show") is True:
            await _show(ls, evidence)
        return evidence

    @server.command("dice.showTrace")
    async def show_trace(ls: DiceServer, *arguments: Any) -> Any:
        from dice_ls.suggestions.evidence import ordered
        from dice_ls.suggestions.trace import NoTrace, trace

        document, hole_id, hole = await targets.target(ls, arguments)
        record, _ = latest(ls, document, hole_id)
        wanted = arguments[0].get("candidate")
        chosen = next((c for c in ordered(record) if wanted is None or c.index == wanted), None)
        if record is None or chosen is None:
            raise JsonRpcInvalidParams(f"no candidate of `{hole.name}` is known")
        try:
            return await asyncio.to_thread(trace, hole_id, chosen, record.checkpoint)
        except NoTrace as error:
            raise JsonRpcInvalidParams(str(error)) from error


def latest(ls: DiceServer, document: Document, hole_id: HoleId) -> tuple[Record | None, bool]:
    """The results for a hole, and whether they belong to an earlier text of it."""
    record = ls.store.get(document.uri, hole_id)
    if record is not None:
        return record, False
    earlier = ls.store.stale(document.uri, hole_id)
    return earlier, earlier is not None


def _evidence(ls: DiceServer, document: Document, hole_id: HoleId, hole: Hole) -> Evidence:
    from dice_ls.suggestions.evidence import evidence

    record, stale = latest(ls, document, hole_id)
    return evidence(document.uri, hole_id, hole, record, stale, ls.engine.device)


async def _named(document: Document, position: types.Position) -> tuple[HoleId, Hole] | None:
    """The hole whose head the cursor is in, or whose name is under it (its launch, for example)."""
    offset = document.positions.offset(position)
    found = await document.holes()
    for hole_id, hole in found:
        if hole.anchor[0] <= offset < _head_end(document, hole):
            return hole_id, hole
    word = document.positions.word(offset)
    return next((pair for pair in found if pair[1].name == word), None)


def _head_end(document: Document, hole: Hole) -> int:
    if hole.kind == "kernel_body":
        return hole.start_byte
    line_end = document.positions.data.find(b"\n", hole.anchor[0])
    return hole.anchor[1] if line_end < 0 else min(line_end, hole.anchor[1])


async def _show(ls: DiceServer, evidence: Evidence) -> None:
    if not ls.supports("window.show_document.support"):
        ls.show(plain(evidence["markdown"]))
        return
    folder = Path(tempfile.mkdtemp(prefix="dice-evidence-"))
    page = folder / f"{evidence['name']}.md"
    await asyncio.to_thread(page.write_text, evidence["markdown"] + "\n", encoding="utf-8")
    try:
        await ls.window_show_document_async(types.ShowDocumentParams(page.as_uri(), take_focus=True))
    except JsonRpcException:
        ls.show(plain(evidence["markdown"]))


def plain(markdown: str) -> str:
    return markdown.replace("**", "").replace("`", "").replace("  \n", "\n").replace("*", "")
