"""The asyncio client of the engine process. No torch here."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from dice_engine import wire
from dice_engine.runtime import (
    UNIX_SOCKETS,
    EngineError,
    forwarded_from,
    log_path,
    prepare_dir,
    read_token,
    socket_dir,
    socket_path,
)
from dice_engine.verify.verdict import Verdict

START_TIMEOUT = 30.0
_END = object()

GenerateEvent: TypeAlias = wire.Progress | wire.CandidateEvent | wire.Done

__all__ = ["EngineClient", "EngineError", "GenerateEvent", "socket_dir"]


class EngineClient:
    """One connection; any number of requests may run on it at the same time.

    ``client = await EngineClient.connect()``, then :meth:`generate`, :meth:`verify`, :meth:`cancel`, :meth:`status`,
    and :meth:`close`. Every failure is an :class:`EngineError` with one line that says what is wrong.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, welcome: wire.Welcome
    ) -> None:
        self._reader, self._writer = reader, writer
        self.pid, self.version = welcome.pid, welcome.version
        self._waiting: dict[str, asyncio.Queue[object]] = {}
        self._numbers = itertools.count(1)
        self._lost: str | None = None
        self._listener = asyncio.ensure_future(self._listen())

    @staticmethod
    async def connect(start: bool = True) -> EngineClient:
        """Connect to the user's engine process; ``start`` starts one when none answers.

        Raises :class:`EngineError` when there is none, or it is of another version, or it does not come up.
        """
        client = await _try_connect()
        if client is not None:
            return client
        host = forwarded_from()
        if host is not None:
            raise EngineError(f"the engine of {host} does not answer; see dice serve --on {host}")
        if not start:
            raise EngineError("no engine is running; start one with: dice serve")
        process = await asyncio.to_thread(_start_service)
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
            client = await _try_connect()
            if client is not None:
                return client
            if process.poll() == 0:
                # Another engine holds the lock: started by another editor just now (it will answer), or ending.
                await asyncio.sleep(0.2)
                process = await asyncio.to_thread(_start_service)
            elif process.poll() is not None:
                raise EngineError(
                    f"the engine did not start (exit {process.returncode}); its log: {log_path()}"
                )
        raise EngineError(f"the engine did not answer within {START_TIMEOUT:.0f} s; its log: {log_path()}")

    @property
    def connected(self) -> bool:
        return self._lost is None

    def new_id(self) -> str:
        """An id for the next request; ids are this connection's own."""
        return str(next(self._numbers))

    async def generate(self, request: wire.GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Events of a generate request, the last is ``Done``. An empty ``id`` is filled in. Leaving the loop early
        (or cancelling the task) cancels the request in the engine."""
        if not request.id:
            request = replace(request, id=self.new_id())
        async with contextlib.aclosing(self._events(request)) as events:
            async for event in events:
                if isinstance(event, (wire.Progress, wire.CandidateEvent, wire.Done)):
                    yield event

    async def verify(self, request: wire.VerifyRequest) -> Verdict:
        """The verdict on one candidate. Cancelling the task stops the work in the engine."""
        if not request.id:
            request = replace(request, id=self.new_id())
        async with contextlib.aclosing(self._events(request)) as events:
            async for event in events:
                if isinstance(event, wire.VerdictEvent):
                    return event.verdict
        raise EngineError("the verification was cancelled")

    async def status(self) -> wire.Status:
        async with contextlib.aclosing(self._events(wire.StatusRequest(self.new_id()))) as events:
            async for event in events:
                if isinstance(event, wire.Status):
                    return event
        raise EngineError("the engine gave no status")

    async def cancel(self, id: str) -> None:
        """Cancel the request ``id``, which then ends with ``Done(cancelled=True)``."""
        await self._send(wire.CancelRequest(id))

    async def shutdown(self) -> None:
        """End the engine process and wait until it has closed the connection."""
        with contextlib.suppress(EngineError):
            await self._send(wire.ShutdownRequest(self.new_id()))
            await self._listener
        await self.close()

    async def lost(self) -> None:
        """Return when the connection has ended."""
        await asyncio.wait([self._listener])

    async def close(self) -> None:
        """Close the connection; the engine cancels what this client still had running."""
        self._listener.cancel()
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._listener
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _events(
        self, request: wire.GenerateRequest | wire.VerifyRequest | wire.StatusRequest
    ) -> AsyncGenerator[wire.Event, None]:
        queue: asyncio.Queue[object] = asyncio.Queue()
        if request.id in self._waiting:
            raise EngineError(f"the request id {request.id} is in use")
        self._waiting[request.id] = queue
        ended = False
        try:
            await self._send(request)
            while True:
                event = await queue.get()
                if event is _END:
                    ended = True
                    raise EngineError(self._lost or "the connection to the engine is closed")
                if isinstance(event, wire.Error):
                    ended = True
                    raise EngineError(event.message)
                ended = isinstance(event, (wire.Done, wire.VerdictEvent, wire.Status))
                yield event  # type: ignore[misc]
                if ended:
                    return
        finally:
            del self._waiting[request.id]
            if not ended and self._lost is None:
                # No await: this also runs while the task is being cancelled.
                self._writer.write(wire.encode(wire.CancelRequest(request.id)))

    async def _send(self, message: wire.Request) -> None:
        if self._lost is not None:
            raise EngineError(self._lost)
        try:
            self._writer.write(wire.encode(message))
            await self._writer.drain()
        except wire.WireError as error:
            raise EngineError(f"the request cannot be sent: {error}") from None
        except OSError as error:
            raise EngineError(f"the engine is gone: {error.strerror or error}") from None

    async def _listen(self) -> None:
        reason = "the engine ended; the next request starts it again"
        try:
            while (message := await wire.read(self._reader)) is not None:
                id = getattr(message, "id", "")
                if isinstance(message, wire.Error) and not id:
                    reason = message.message
                    break
                if id in self._waiting:
                    self._waiting[id].put_nowait(message)
        except ConnectionError:
            pass  # it was killed while something was being sent: to the user the same as its end
        except (OSError, wire.WireError) as error:
            reason = f"the connection to the engine broke: {error}"
        finally:
            self._lost = reason
            for queue in self._waiting.values():
                queue.put_nowait(_END)
            self._writer.close()


async def _try_connect() -> EngineClient | None:
    """None when nothing answers at the address; raises :class:`EngineError` when what answers refuses."""
    token = ""
    try:
        if UNIX_SOCKETS:
            reader, writer = await asyncio.open_unix_connection(socket_path())
        else:
            address = read_token()
            if address is None:
                return None
            port, token = address
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    try:
        writer.write(wire.encode(wire.Hello(wire.PROTOCOL, token)))
        await writer.drain()
        answer = await asyncio.wait_for(wire.read(reader), 10)
    except (OSError, asyncio.TimeoutError):
        answer = None
    except wire.WireError as error:
        writer.close()
        raise EngineError(f"what answers at {socket_dir()} is no engine of this version: {error}") from None
    if isinstance(answer, wire.Welcome):
        return EngineClient(reader, writer, answer)
    writer.close()
    if isinstance(answer, wire.Error):
        raise EngineError(answer.message)
    return None


def _start_service() -> subprocess.Popen[bytes]:
    """Start a detached engine process. One that finds another running ends at once with 0, so two editors that start
    at the same time end up with one."""
    prepare_dir()
    try:
        log = log_path().open("ab")
    except OSError as error:
        raise EngineError(f"cannot write {log_path()}: {error.strerror}") from None
    detached: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        detached = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    with log:
        try:
            return subprocess.Popen[bytes](
                [sys.executable, "-m", "dice_engine.service", "--exit-when-idle"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Not the workspace, and no folder on the path that holds somebody's modules.
                cwd=Path.home(),
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                **detached,
            )
        except OSError as error:
            raise EngineError(f"cannot start the engine: {error}") from None
