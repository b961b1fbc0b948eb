"""A code lens over every kernel and module: what can be done, what is being done, what was found."""

from __future__ import annotations

from dice_engine.source.hole import Hole
from lsprotocol import types

from dice_ls.documents import Document
from dice_ls.features import edits
from dice_ls.features.code_actions import command
from dice_ls.language_server import DiceServer
from dice_ls.suggestions import wording
from dice_ls.suggestions.store import HoleId


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))
    async def code_lens(ls: DiceServer, params: types.CodeLensParams) -> list[types.CodeLens] | None:
        document = ls.documents.get(params.text_document.uri)
        if document is None or not ls.settings.codeLens:
            return None
        found = await document.holes()
        return _hot_lines(ls, document) + [
            types.CodeLens(_above(document, hole), command=_command(ls, document, hole_id, hole))
            for hole_id, hole in found
            if hole.editable and (hole.kind != "selection" or ls.store.get(document.uri, hole_id))
        ]


def _hot_lines(ls: DiceServer, document: Document) -> list[types.CodeLens]:
    """What ``dice record`` saw of the document's lines, above those that took a good part of the time."""
    lenses = []
    lines = None
    for hot in ls.project_of(document).recorded.hot_lines(document.path):
        if lines is None:
            lines = [line.strip() for line in document.text.splitlines()]
        same = [number for number, line in enumerate(lines) if line == hot.text]
        if same:  # the line may have moved since; one that was edited is not annotated
            at = types.Position(min(same, key=lambda number: abs(number - hot.line)), 0)
            lenses.append(
                types.CodeLens(types.Range(at, at), command=types.Command(hot.words, "dice.status"))
            )
    return lenses


def _above(document: Document, hole: Hole) -> types.Range:
    start = document.positions.position(hole.anchor[0])
    return types.Range(start, start)


def _command(ls: DiceServer, document: Document, hole_id: HoleId, hole: Hole) -> types.Command:
    if not hole.plan.runnable:
        if not edits.can_annotate(hole):
            why = "see the @dice annotation" if edits.annotated(hole) else "see why"
            return command(f"DICE: no plan, {why}", "dice.status", document, hole_id)
        return command("DICE: no plan, add @dice", "dice.insertAnnotation", document, hole_id)
    record, candidates = edits.offers(ls, document, hole_id, hole)
    if record is None or (record.offers() and not candidates):
        title = "DICE: find faster"
        if ls.store.stale(document.uri, hole_id):
            title += " (the code changed since the last search)"
        return command(title, "dice.findFaster", document, hole_id)
    title = wording.lens_title(record, ls.jobs.paused)
    if record.active:
        return command(title, "dice.status", document, hole_id)
    if candidates:
        return command(title, "dice.applySuggestion", document, hole_id, candidate=candidates[0].index)
    return command(title, "dice.findFaster", document, hole_id)
