"""Sessions of the real language server, with a scripted engine behind the real socket, and of the verifier."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from lsp_client import Client

if TYPE_CHECKING:
    from dice_engine.verify.session import VerifySession

SCRIPTED = Path(__file__).with_name("scripted_engine.py")


class Workplace:
    """One user's machine: a workspace, a home for stored answers, and a runtime folder with the engine's socket."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.engine_folder = folder / "engine"
        self.engine_folder.mkdir()
        self.environment = {
            "DICE_RUNTIME_DIR": str(runtime),
            "XDG_DATA_HOME": str(folder / "data"),
            "OMP_NUM_THREADS": "1",
        }
        self.engine: subprocess.Popen[bytes] | None = None
        self.clients: list[Client] = []

    async def start_engine(self, **script: Any) -> None:
        path = self.engine_folder / "script.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        (self.engine_folder / "ready").unlink(missing_ok=True)
        environment = {**os.environ, **self.environment}
        self.engine = subprocess.Popen([sys.executable, str(SCRIPTED), str(path)], env=environment)
        deadline = time.monotonic() + 60
        while not (self.engine_folder / "ready").exists():
            assert time.monotonic() < deadline and self.engine.poll() is None
            await asyncio.sleep(0.01)

    def hold(self) -> None:
        (self.engine_folder / "hold").touch()

    def release(self) -> None:
        (self.engine_folder / "hold").unlink()

    def kill_engine(self) -> None:
        if self.engine is not None:
            self.engine.kill()
            self.engine.wait()

    def stop_real_engine(self) -> None:
        """End the engine process that a server or command of this test has started."""
        program = (
            "import asyncio\nfrom dice_engine.client import EngineClient\n"
            "async def end():\n    await (await EngineClient.connect(start=False)).shutdown()\n"
            "asyncio.run(end())"
        )
        environment = {**os.environ, **self.environment}
        subprocess.run(
            [sys.executable, "-c", program], env=environment, timeout=60, stderr=subprocess.DEVNULL
        )

    def requests(self) -> list[dict[str, Any]]:
        """What has arrived at the engine."""
        log = self.engine_folder / "requests.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    async def until_requested(self, kind: str) -> None:
        deadline = time.monotonic() + 60
        while not any(request["type"] == kind for request in self.requests()):
            assert time.monotonic() < deadline, f"no {kind} request reached the engine"
            await asyncio.sleep(0.01)

    async def client(self, **options: Any) -> Client:
        client = await Client.start(self.environment, root=self.workspace, **options)
        self.clients.append(client)
        return client


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    """A verifier as it comes, on the CPU backend."""
    from dice_engine.verify.session import VerifySession

    with VerifySession("cpu") as opened:
        yield opened


@pytest.fixture
def runtime_folder() -> Iterator[Path]:
    """A short path: socket addresses end at 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="dice-") as folder:
        yield Path(folder)


@pytest_asyncio.fixture
async def workplace(tmp_path: Path, runtime_folder: Path) -> AsyncIterator[Workplace]:
    place = Workplace(tmp_path, runtime_folder)
    yield place
    for client in place.clients:
        await client.kill()
    place.kill_engine()
