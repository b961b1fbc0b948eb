"""The language client of ``dice bench lsp``: few words, one request at a time, an engine of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


class ServerError(Exception):
    """The server did not answer as it should; one line."""


def command(name: str, **argument: Any) -> dict[str, Any]:
    return {"command": name, "arguments": [argument]}


def share(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def summary(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        "median_ms": round(times[len(times) // 2], 2),
        "p99_ms": round(share(times, 0.99), 2),
        "max_ms": round(times[-1], 2),
    }


class Session:
    """A server process and what is said to it. ``engine``: its searches may start an engine, which ends with it."""

    def __init__(self, engine: bool) -> None:
        self._engine = engine
        self._next = 0
        self._heard: set[str] = set()
        """Methods of what the server sent by itself."""
        self.initialize_ms = 0.0

    def __enter__(self) -> Session:
        self._folder = tempfile.TemporaryDirectory(prefix="dice-bench-")
        self._environment = {**os.environ, "DICE_RUNTIME_DIR": self._folder.name, "PYTHONSAFEPATH": "1"}
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dice_ls.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )
        options = {"trusted": True, "ghostTextDelayMs": 0}
        capabilities = {
            "textDocument": {"codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}}
        }
        try:
            self.request(
                "initialize",
                {
                    "processId": os.getpid(),
                    "rootUri": None,
                    "capabilities": capabilities,
                    "initializationOptions": options,
                },
            )
        except BaseException:
            self.__exit__()
            raise
        self.initialize_ms = 1000 * (time.perf_counter() - start)
        self.notify("initialized", {})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._engine:
            stop = [sys.executable, "-m", "dice_engine.service", "--stop", "--json"]
            subprocess.run(stop, env=self._environment, timeout=60, check=False, stdout=subprocess.DEVNULL)
        self._folder.cleanup()

    def open(self, uri: str, text: str) -> float:
        """Milliseconds to send a document."""
        start = time.perf_counter()
        item = {"uri": uri, "languageId": "cuda", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return 1000 * (time.perf_counter() - start)

    def wait_settled(self) -> None:
        """Wait until nothing of what follows an opened document is under way: its diagnostics have come."""
        while "textDocument/publishDiagnostics" not in self._heard:
            self._read()

    def request(self, method: str, params: Any) -> tuple[float, Any]:
        """Milliseconds until the answer, and its result."""
        self._next += 1
        start = time.perf_counter()
        self._send({"id": self._next, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == self._next and "method" not in message:
                if "error" in message:
                    raise ServerError(f"{method}: {message['error']['message']}")
                return 1000 * (time.perf_counter() - start), message.get("result")
            if "id" in message and "method" in message:
                self._send({"id": message["id"], "result": None})

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def cancel_time(self) -> float | None:
        """Milliseconds from a cancel of everything to the engine's word that nothing is decoded or checked for us."""
        deadline = time.monotonic() + 120
        while (
            self.request("workspace/executeCommand", {"command": "dice.status"})[1]["state"] not in _AT_WORK
        ):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)
        start = time.perf_counter()
        self.request("workspace/executeCommand", {"command": "dice.cancel"})
        previous = os.environ.get("DICE_RUNTIME_DIR")
        os.environ["DICE_RUNTIME_DIR"] = self._folder.name
        try:
            asyncio.run(_until_idle())
        finally:
            os.environ.pop("DICE_RUNTIME_DIR")
            if previous is not None:
                os.environ["DICE_RUNTIME_DIR"] = previous
        return round(1000 * (time.perf_counter() - start), 2)

    def wait_idle(self) -> None:
        """Wait until no search runs or waits."""
        while self.request("workspace/executeCommand", {"command": "dice.status"})[1]["queue"]:
            time.sleep(0.02)

    def cpu_ms(self) -> float | None:
        """CPU time that the server's threads have spent; None where the system does not say."""
        try:
            threads = list(Path(f"/proc/{self._process.pid}/task").iterdir())
            return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e6
        except (OSError, ValueError, IndexError):
            return None

    def memory_mb(self) -> float | None:
        """Resident memory of the server's process; None where the system does not say."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return round(int(kilobytes) / 1024, 1)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while header := self._process.stdout.readline().strip():
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise ServerError(f"the server ended (exit {self._process.wait()})")
        message = json.loads(self._process.stdout.read(length))
        self._heard.add(message.get("method", ""))
        return message


_AT_WORK = ("decoding", "checking")


async def _until_idle() -> None:
    from dice_engine.client import EngineClient, EngineError

    try:
        client = await EngineClient.connect(start=False)
    except EngineError:
        return
    deadline = time.monotonic() + 60
    while (await client.status()).active and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
    await client.close()
