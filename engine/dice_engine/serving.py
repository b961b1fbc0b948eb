"""The front of the engine process: connections, requests and their events, on one event loop that never blocks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from importlib import metadata

from dice_engine import wire
from dice_engine.decode_queue import DecodeJob, DecodeQueue, QueueFull
from dice_engine.devices import gpu_name, without_doubt
from dice_engine.runtime import UNIX_SOCKETS, socket_path, token_path, write_token
from dice_engine.verify_pool import VerifyPool

log = logging.getLogger(__name__)

HELLO_TIMEOUT = 10.0
MAX_REQUESTS = 256
MAX_UNSENT = 32 * 2**20
"""Bytes that wait for a client that does not read; beyond it the connection is given up."""


def version() -> str:
    try:
        return metadata.version("dice-ls")
    except metadata.PackageNotFoundError:
        return "unknown"


class Service:
    """All connections of one engine process. ``await run()`` returns when it was asked to end."""

    def __init__(self, idle_seconds: float, exit_when_idle: bool, gpu_memory: float | None = None) -> None:
        self.idle_seconds, self.exit_when_idle = idle_seconds, exit_when_idle
        self.decode = DecodeQueue(idle_seconds, gpu_memory)
        self.connections: set[Connection] = set()
        self.token = ""
        self.started = self.last_active = time.monotonic()
        self._pools: dict[str, VerifyPool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        if UNIX_SOCKETS:
            socket_path().unlink(missing_ok=True)  # left by one that was killed; the caller holds the lock
            server = await asyncio.start_unix_server(self._connected, socket_path())
            socket_path().chmod(0o600)
        else:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            self.token = write_token(server.sockets[0].getsockname()[1])
        log.info("the engine answers, pid %d", os.getpid())
        watch = asyncio.ensure_future(self._watch())
        try:
            await self._stop.wait()
        finally:
            watch.cancel()
            server.close()
            (socket_path() if UNIX_SOCKETS else token_path()).unlink(missing_ok=True)
            for connection in list(self.connections):
                connection.close()
            await asyncio.to_thread(self.decode.close)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=5)
            await asyncio.gather(*(pool.close() for pool in self._pools.values()))
            log.info("the engine ends")

    def stop(self) -> None:
        self._stop.set()

    def pool(self, device: wire.Device) -> VerifyPool:
        settled = without_doubt(device)
        if settled not in self._pools:
            self._pools[settled] = VerifyPool(settled)
        return self._pools[settled]

    def status(self, id: str) -> wire.Status:
        now = time.monotonic()
        active = self.decode.running + sum(len(c.verifying) for c in self.connections)
        return wire.Status(
            id=id,
            pid=os.getpid(),
            version=version(),
            device=self.decode.device or gpu_name() or "cpu",
            models=list(self.decode.models),
            clients=len(self.connections),
            active=active,
            waiting=len(self.decode) - self.decode.running,
            uptime_seconds=now - self.started,
            idle_seconds=0.0 if active else now - self.last_active,
            gpu_bytes=self.decode.gpu_bytes,
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        self.connections.add(connection)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await connection.serve()
        except Exception:
            log.exception("a connection failed")
        finally:
            connection.close()
            self.connections.discard(connection)
            self.last_active = time.monotonic()

    async def _watch(self) -> None:
        """Idle time: children end (the decode thread unloads models itself), and a process that nobody is connected to
        ends too, when it was started on demand."""
        while True:
            await asyncio.sleep(min(self.idle_seconds / 4, 5.0))
            if len(self.decode) or any(c.verifying for c in self.connections):
                self.last_active = time.monotonic()
            elif time.monotonic() - self.last_active > self.idle_seconds:
                for pool in self._pools.values():
                    await pool.close()
                if self.exit_when_idle and not self.connections:
                    self.stop()


class Connection:
    def __init__(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._service, self._reader, self._writer = service, reader, writer
        self._decoding: dict[str, DecodeJob] = {}
        self.verifying: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()

    async def serve(self) -> None:
        """Answer until the client leaves. A frame that is not understood ends this connection with one error."""
        try:
            if not await self._greet():
                return
            while (message := await wire.read(self._reader)) is not None:
                self._dispatch(message)
        except wire.WireError as error:
            self.post(wire.Error("", f"the engine does not understand this client: {error}"))
        except (OSError, asyncio.TimeoutError):
            pass
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.drain(), 2)

    def close(self) -> None:
        """Cancel what this client still has running."""
        for job in self._decoding.values():
            self._service.decode.cancel(job)
        for task in self.verifying.values():
            task.cancel()
        self._writer.close()

    def post(self, event: wire.Event) -> None:
        if self._writer.is_closing():
            return
        try:
            self._writer.write(wire.encode(event))
        except wire.WireError as error:
            self._writer.write(wire.encode(wire.Error(getattr(event, "id", ""), str(error))))
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT:
            log.warning("a client does not read its events: connection given up")
            self._writer.transport.abort()

    async def _greet(self) -> bool:
        hello = await asyncio.wait_for(wire.read(self._reader), HELLO_TIMEOUT)
        if hello is None:
            return False
        if not isinstance(hello, wire.Hello):
            raise wire.WireError("the first message must be hello")
        if hello.protocol != wire.PROTOCOL:
            raise wire.WireError(
                f"it speaks protocol {hello.protocol}, this engine (dice-ls {version()}) {wire.PROTOCOL}; "
                "end the older one with: dice serve --stop"
            )
        if not secrets.compare_digest(hello.token.encode(), self._service.token.encode()):
            raise wire.WireError("its token is not that of the token file")
        self.post(wire.Welcome(wire.PROTOCOL, os.getpid(), version()))
        return True

    def _dispatch(self, message: wire.Message) -> None:
        self._service.last_active = time.monotonic()
        if isinstance(message, wire.CancelRequest):
            if message.id in self._decoding:
                self._service.decode.cancel(self._decoding[message.id])
            elif message.id in self.verifying:
                self.verifying[message.id].cancel()
        elif isinstance(message, wire.StatusRequest):
            self.post(self._service.status(message.id))
        elif isinstance(message, wire.ShutdownRequest):
            self._service.stop()
        elif isinstance(message, (wire.GenerateRequest, wire.VerifyRequest)):
            if message.id in self._decoding or message.id in self.verifying:
                self.post(wire.Error(message.id, f"the request id {message.id} is in use on this connection"))
            elif len(self._decoding) + len(self.verifying) >= MAX_REQUESTS:
                self.post(wire.Error(message.id, f"{MAX_REQUESTS} requests of this client run already"))
            elif isinstance(message, wire.GenerateRequest):
                self._generate(message)
            else:
                self.verifying[message.id] = asyncio.ensure_future(self._verify(message))
        else:
            raise wire.WireError(f"a {message.type} message is not for the engine")

    def _generate(self, request: wire.GenerateRequest) -> None:
        def emit(event: wire.Event) -> None:  # in the decode thread
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._emitted, event)

        try:
            self._decoding[request.id] = self._service.decode.submit(request, emit)
            if request.priority <= 0:
                self._service.pool(request.device).warm()
        except QueueFull as error:
            self.post(wire.Error(request.id, str(error)))

    def _emitted(self, event: wire.Event) -> None:
        if isinstance(event, (wire.Done, wire.Error)):
            self._decoding.pop(event.id, None)
            self._service.last_active = time.monotonic()
        self.post(event)

    async def _verify(self, request: wire.VerifyRequest) -> None:
        try:
            verdict = await self._service.pool(request.device).verify(request)
            self.post(wire.VerdictEvent(request.id, verdict))
        except asyncio.CancelledError:
            self.post(wire.Done(request.id, cancelled=True))
        except Exception as error:
            log.exception("a verification failed")
            self.post(wire.Error(request.id, f"the engine failed inside: {type(error).__name__}: {error}"))
        finally:
            self.verifying.pop(request.id, None)
            self._service.last_active = time.monotonic()
