"""One progress bar at the client, with a cancel button."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from lsprotocol import types

if TYPE_CHECKING:
    from dice_ls.language_server import DiceServer

log = logging.getLogger(__name__)


class ProgressBar:
    """Shown after ``begin``, unless the client cannot or will not; then every method does nothing."""

    def __init__(self, server: DiceServer, cancel: Callable[[], object]) -> None:
        self.token = f"dice-{uuid.uuid4().hex[:12]}"
        self._server = server
        self._cancel = cancel
        self.shown = False

    async def begin(self, title: str, message: str) -> None:
        server = self._server
        if not server.supports("window.work_done_progress"):
            return
        try:
            await asyncio.wait_for(server.work_done_progress.create_async(self.token), timeout=5)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.info("the client shows no progress for %s", title)
            return
        self.shown = True
        server.bars[self.token] = self
        begin = types.WorkDoneProgressBegin(title, cancellable=True, message=message)
        server.work_done_progress.begin(self.token, begin)

    def report(self, message: str, percentage: int | None = None) -> None:
        if self.shown:
            report = types.WorkDoneProgressReport(message=message, percentage=percentage)
            self._server.work_done_progress.report(self.token, report)

    def end(self, message: str) -> None:
        if self.shown:
            self.shown = False
            self._server.work_done_progress.end(self.token, types.WorkDoneProgressEnd(message=message))
            self._server.work_done_progress.tokens.pop(self.token, None)
            self._server.bars.pop(self.token, None)

    def cancel(self) -> None:
        """The user pressed the button."""
        self._cancel()
