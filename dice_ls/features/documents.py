"""What follows from a document being opened, changed, saved or closed. The texts themselves: ``dice_ls.documents``."""

from __future__ import annotations

from lsprotocol import types

from dice_ls.features import diagnostics, trust
from dice_ls.language_server import DiceServer


def register(server: DiceServer) -> None:
    board = server.board = diagnostics.Board(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(ls: DiceServer, params: types.DidOpenTextDocumentParams) -> None:
        board.check_annotations(params.text_document.uri, delay=0)
        document = ls.documents.get(params.text_document.uri)
        if document is not None and ls.settings.searchOnSave:
            document.saved = {hole_id for hole_id, _ in await document.holes()}

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(ls: DiceServer, params: types.DidChangeTextDocumentParams) -> None:
        ls.ghosts.typed(params.text_document.uri)
        board.check_annotations(params.text_document.uri, delay=ls.settings.diagnosticsDelayMs / 1000)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(ls: DiceServer, params: types.DidSaveTextDocumentParams) -> None:
        board.check_saved(params.text_document.uri)
        await _search_edited(ls, params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(ls: DiceServer, params: types.DidCloseTextDocumentParams) -> None:
        board.forget(params.text_document.uri)
        ls.jobs.cancel_document(params.text_document.uri)


async def _search_edited(ls: DiceServer, uri: str) -> None:
    """Search for faster versions of what was edited since the last save, where the user has turned that on."""
    document = ls.documents.get(uri)
    if document is None or not ls.settings.searchOnSave:
        return
    pairs = await document.holes()
    before, document.saved = document.saved, {hole_id for hole_id, _ in pairs}
    if not trust.known(ls, document):
        return
    for hole_id, hole in pairs:
        edited = hole_id not in before and hole.kind == "kernel_body"
        if edited and hole.editable and hole.plan.runnable and ls.store.get(document.uri, hole_id) is None:
            ls.jobs.submit(document, hole_id, hole, background=True)
