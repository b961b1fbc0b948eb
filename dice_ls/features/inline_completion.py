"""Ghost text at the cursor inside a kernel: debounced, cancelled by the next key, compiled before it is shown."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lsprotocol import types

from dice_ls import power
from dice_ls.documents import Document
from dice_ls.features import trust
from dice_ls.language_server import DiceServer

if TYPE_CHECKING:
    from dice_engine.wire import CandidateEvent

    from dice_ls.suggestions.ghost import Place

log = logging.getLogger(__name__)
_CHOICES = 4
"""Candidates for somebody who asks for ghost text by hand, to step through."""

Items = list[types.InlineCompletionItem]


def register(server: DiceServer) -> None:
    ghosts = Ghosts(server)
    server.ghosts = ghosts

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(ls: DiceServer, params: types.InlineCompletionParams) -> Items:
        document = ls.documents.get(params.text_document.uri)
        invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
        if document is None or not ghosts.wanted(invoked):
            return []
        return await ghosts.at(document, params.position, invoked)


class Ghosts:
    """The ghost text of all documents: at most one request is at work, the newest."""

    def __init__(self, server: DiceServer) -> None:
        self._server = server
        self._work: asyncio.Task[Items] | None = None
        self._uri = ""
        self._shown: tuple[str, str, str] | None = None
        """URI, body up to the cursor and ghost text of what was shown last."""

    def wanted(self, invoked: bool) -> bool:
        server, mode = self._server, self._server.settings.ghostText
        if mode == "off" or server.jobs.paused:
            return False
        if invoked:
            return True
        return mode == "automatic" and (server.settings.workOnBattery or not power.on_battery())

    def typed(self, uri: str) -> None:
        """A document was changed: what is decoded for its former text is of no use."""
        if self._work is not None and unquote(uri) == self._uri:
            self._work.cancel()

    async def at(self, document: Document, position: types.Position, invoked: bool) -> Items:
        """The suggestions at a position; none when the next key or request comes first."""
        if self._work is not None:
            self._work.cancel()
        work = asyncio.ensure_future(self._find(document, position, invoked))
        self._work, self._uri = work, unquote(document.uri)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if not work.cancelled():  # the client took its request back
                work.cancel()
                raise
            return []
        finally:
            if self._work is work:
                self._work = None

    async def _find(self, document: Document, position: types.Position, invoked: bool) -> Items:
        from dice_ls.suggestions.ghost import place

        here = place([hole for _, hole in await document.holes()], document.positions.offset(position))
        if here is None:
            return []
        known = self._typed_along(document.uri, here) if not invoked else None
        if known is not None:
            return self._items(here, position, [known])
        if not invoked:
            await asyncio.sleep(self._server.settings.ghostTextDelayMs / 1000)
        found = await self._decode(document, here, _CHOICES if invoked else 1)
        if found:
            self._shown = (document.uri, here.begin + here.tail, found[0])
        return self._items(here, position, found)

    def _typed_along(self, uri: str, here: Place) -> str | None:
        """The rest of what was shown last, when the keys since were its own."""
        if self._shown is None or self._shown[0] != uri:
            return None
        _, before, ghost = self._shown
        now = here.begin + here.tail
        if now.startswith(before) and (before + ghost).startswith(now):
            return (before + ghost)[len(now) :] or None
        return None

    async def _decode(self, document: Document, here: Place, n: int) -> list[str]:
        """Different continuations that fit, in the order in which the engine gives them."""
        from dice_engine.client import EngineError
        from dice_engine.wire import CandidateEvent

        server = self._server
        settings = server.settings
        request = here.request(settings.ghostTextTokens, n, settings.checkpoint, settings.device)
        found: list[str] = []
        try:
            client = await server.engine.client()
            async with aclosing(client.generate(request)) as events:
                async for event in events:
                    if isinstance(event, CandidateEvent):
                        ghost = await self._fitting(document, here, event)
                        if ghost is not None and ghost not in found:
                            found.append(ghost)
        except EngineError as error:
            log.info("no ghost text: %s", error)
            server.note(f"ghost text: {error}")
        return found

    async def _fitting(self, document: Document, here: Place, event: CandidateEvent) -> str | None:
        from dice_ls.suggestions.ghost import cuts, fits

        compiles = self._errors if trust.known(self._server, document) else None
        for ghost in cuts(here, event.core, event.complete):
            if here.document_text(ghost) is not None and await fits(here, ghost, compiles):
                return ghost
        return None

    async def _errors(self, text: str) -> list[int] | None:
        report = await self._server.compiler.check(text)
        return [problem.line for problem in report.problems] if report.backend else None

    @staticmethod
    def _items(here: Place, position: types.Position, ghosts: list[str]) -> Items:
        at = types.Range(position, position)
        texts = [here.document_text(ghost) for ghost in ghosts]
        return [types.InlineCompletionItem(text, range=at) for text in texts if text]
