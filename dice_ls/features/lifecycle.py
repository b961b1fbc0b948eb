"""initialize, initialized and shutdown: what the client can do, jobs out. Settings: ``configuration.py``."""

from __future__ import annotations

import asyncio

from lsprotocol import types

from dice_ls.features import configuration, watched_files
from dice_ls.language_server import DiceServer
from dice_ls.positions import Encoding

_ENCODINGS: dict[object, Encoding] = {
    types.PositionEncodingKind.Utf8: "utf-8",
    types.PositionEncodingKind.Utf16: "utf-16",
    types.PositionEncodingKind.Utf32: "utf-32",
}

_SOON = (
    types.DidChangeTextDocumentNotification,
    types.CodeLensRequest,
    types.CodeLensResponse,
    types.CodeLens,
    types.CodeActionRequest,
    types.CodeActionResponse,
    types.CodeAction,
    types.HoverRequest,
    types.HoverResponse,
    types.Hover,
    types.InlineCompletionRequest,
    types.InlineCompletionResponse,
    types.InlineCompletionItem,
)
"""What is sent soon and often: the first one of each should not take longer than the others."""


def register(server: DiceServer) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(ls: DiceServer, params: types.InitializeParams) -> None:
        configuration.at_start(ls, params.initialization_options)
        ls.documents.encoding = _ENCODINGS.get(ls.workspace.position_encoding, "utf-16")

    @server.feature(types.INITIALIZED)
    async def initialized(ls: DiceServer, _params: types.InitializedParams) -> None:
        watched_files.when_ready(ls)
        await ls.watch.follow(ls.roots())
        ls.say_project_problems()
        await configuration.when_ready(ls)  # the last: it waits for the client
        for kind in _SOON:
            ls.protocol.prepare(kind)
            await asyncio.sleep(0)

    @server.feature(types.SHUTDOWN)
    async def shutdown(ls: DiceServer, _params: None) -> None:
        await ls.jobs.stop()
        await ls.engine.close()
        ls.compiler.close()
        ls.watch.close()

    @server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def cancel_progress(ls: DiceServer, params: types.WorkDoneProgressCancelParams) -> None:
        if (bar := ls.bars.get(params.token)) is not None:
            bar.cancel()
