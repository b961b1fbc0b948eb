"""The server's connection to the engine process: made when a job needs it, made anew after it broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dice_engine.client import EngineClient


class Engine:
    """At most one connection. The engine itself belongs to the user, not to this server: closing leaves it running."""

    def __init__(self) -> None:
        self._client: EngineClient | None = None
        self.device = ""
        """Where the engine runs its models, once it has said so."""

    async def client(self) -> EngineClient:
        """The live connection, or a new one (the engine is started when none runs). Raises EngineError."""
        # Imported here: the start of the server does not wait for it.
        from dice_ls.suggestions.pipeline import EngineError, connect

        if self._client is None or not self._client.connected:
            self._client = await connect()
            try:
                self.device = (await self._client.status()).device
            except EngineError:
                self._client = None
                raise
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
