"""The server's connection to the engine process: made when a job needs it, made anew after it broke."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dice_ls.contract import EngineStatus
from dice_ls.status import NO_ENGINE

if TYPE_CHECKING:
    from dice_engine.client import EngineClient


class Engine:
    """At most one connection. The engine itself belongs to the user, not to this server: closing leaves it running."""

    def __init__(self) -> None:
        self._client: EngineClient | None = None
        self._connecting = asyncio.Lock()
        self.device = ""
        """Where the engine runs its models, once it has said so."""
        self.status: EngineStatus = NO_ENGINE

    @property
    def connected(self) -> bool:
        return self._client is not None and self._client.connected

    async def client(self, start: bool = True) -> EngineClient:
        """The live connection, or a new one (``start``: the engine is started when none runs). Raises EngineError."""
        # Imported here: the start of the server does not wait for it.
        from dice_engine.client import EngineClient

        from dice_ls.suggestions.pipeline import connect

        async with self._connecting:
            if self._client is None or not self._client.connected:
                self._client = await connect() if start else await EngineClient.connect(start=False)
                await self.refresh()
            return self._client

    async def refresh(self) -> EngineStatus:
        """Ask the engine what it is and has loaded. Raises EngineError."""
        from dice_ls.suggestions.pipeline import EngineError

        if self._client is None:
            return self.status
        try:
            told = await self._client.status()
        except EngineError:
            self._client, self.status = None, NO_ENGINE
            raise
        self.device = told.device
        self.status = {"running": True, "pid": told.pid, "version": told.version, "models": told.models}
        return self.status

    def current(self) -> EngineStatus:
        """What is known without asking: a broken connection means that no engine runs."""
        if not self.connected:
            self.status = NO_ENGINE
        return self.status

    async def end(self) -> bool:
        """End the engine process, for all editors of the user. False when none was running."""
        from dice_ls.suggestions.pipeline import EngineError

        try:
            client = await self.client(start=False)
            await client.shutdown()
        except EngineError:
            return False
        finally:
            self._client, self.status = None, NO_ENGINE
        return True

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
