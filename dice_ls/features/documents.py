"""What follows from a document being opened, changed or closed. The texts themselves: ``dice_ls.documents``."""

from __future__ import annotations

from lsprotocol import types

from dice_ls.features import diagnostics
from dice_ls.language_server import DiceServer


def register(server: DiceServer) -> None:
    later = diagnostics.Later(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(ls: DiceServer, params: types.DidOpenTextDocumentParams) -> None:
        later.check(params.text_document.uri, delay=0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(ls: DiceServer, params: types.DidChangeTextDocumentParams) -> None:
        ls.ghosts.typed(params.text_document.uri)
        later.check(params.text_document.uri, delay=ls.settings.diagnosticsDelayMs / 1000)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(ls: DiceServer, params: types.DidCloseTextDocumentParams) -> None:
        later.forget(params.text_document.uri)
        ls.jobs.cancel_document(params.text_document.uri)
