"""A user's machine for editor tests: a workspace, a home, the scripted engine on the real socket, the real server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvim_rpc import until
from samples import FAST, FILES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLIENTS = ROOT / ".editors"
"""Where ``make test-editors`` installs the clients."""
SHOTS = ROOT / "docs" / "images" if os.environ.get("DICE_PICTURES") else CLIENTS / "pictures"
"""Where pictures go: only who asks for it makes those of the documentation anew."""
SHOTS.mkdir(parents=True, exist_ok=True)


class Place:
    """Everything one scenario needs but the editor."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        self.runtime = runtime
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / ".git").mkdir()
        for name, text in FILES.items():
            (self.workspace / name).write_bytes(text.encode())
        self.engine_folder = folder / "engine"
        self.engine_folder.mkdir()
        samples = json.dumps({**FILES, "FAST": FAST})
        (self.engine_folder / "samples.json").write_text(samples, encoding="utf-8")
        home = folder / "home"
        home.mkdir()
        self.environment = {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(runtime),
            "DICE_RUNTIME_DIR": str(runtime),
            "DICE_TEST_ENGINE": str(self.engine_folder),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CONFIG", "STATE", "CACHE")},
        }
        # VS Code asks a login shell for the user's PATH.
        (home / ".profile").write_text(f'export PATH="{self.environment["PATH"]}"\n', encoding="utf-8")
        self.engine: subprocess.Popen[bytes] | None = None

    def start_engine(self) -> None:
        (self.engine_folder / "ready").unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "scripted.py"), str(self.engine_folder)]
        self.engine = subprocess.Popen(command, env={**os.environ, **self.environment})
        deadline = time.monotonic() + 30
        while not (self.engine_folder / "ready").exists():
            assert time.monotonic() < deadline and self.engine.poll() is None
            time.sleep(0.02)

    def hold(self) -> None:
        (self.engine_folder / "hold").touch()

    def release(self) -> None:
        (self.engine_folder / "hold").unlink()

    def kill_engine(self) -> None:
        if self.engine is not None:
            self.engine.kill()
            self.engine.wait()

    def servers(self) -> list[int]:
        """The process numbers of the language servers of this place."""
        ours = f"DICE_RUNTIME_DIR={self.runtime}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                program = (process / "cmdline").read_bytes().split(b"\0")
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if ours in environment and any(
                part.endswith((b"/dice-ls", b"dice_ls.server")) for part in program
            ):
                found.append(int(process.name))
        return found

    def kill_server(self) -> None:
        """Kill the one server of this place and wait for another one."""
        (before,) = until(self.servers, "a server")
        os.kill(before, signal.SIGKILL)
        until(lambda: set(self.servers()) - {before}, "a new server")

    def requests(self, kind: str) -> list[dict[str, Any]]:
        log = self.engine_folder / "requests.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [one for one in map(json.loads, lines) if one["type"] == kind]

    def close(self) -> None:
        self.kill_engine()
        pid = int((self.engine_folder / "pid").read_text()) if (self.engine_folder / "pid").exists() else 0
        program = Path(f"/proc/{pid}/cmdline")
        if program.exists() and b"scripted.py" in program.read_bytes():  # one that a scenario has started
            os.kill(pid, signal.SIGKILL)
        end_real_engine(self.environment)


def end_real_engine(environment: dict[str, str]) -> None:
    """End an engine that a server of this test has started by itself."""
    program = (
        "import asyncio\nfrom dice_engine.client import EngineClient\n"
        "async def end():\n    client = await EngineClient.connect(start=False)\n    print(client.pid)\n"
        "asyncio.run(end())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env={**os.environ, **environment}, timeout=60, capture_output=True, text=True
    )
    if done.returncode == 0:
        os.kill(int(done.stdout), signal.SIGTERM)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place whose runtime folder has a short path: socket addresses end at 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="dice-") as runtime:
        one = Place(tmp_path, Path(runtime))
        one.start_engine()
        yield one
        one.close()


@pytest.fixture
def place_without_engine(tmp_path: Path) -> Iterator[Place]:
    """A place where the server starts the real engine by itself."""
    with tempfile.TemporaryDirectory(prefix="dice-") as runtime:
        one = Place(tmp_path, Path(runtime))
        yield one
        one.close()


@pytest.fixture(scope="module")
def place_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One place for all scenarios of a module, where starting the editor takes long."""
    with tempfile.TemporaryDirectory(prefix="dice-") as runtime:
        one = Place(tmp_path_factory.mktemp("place"), Path(runtime))
        one.start_engine()
        yield one
        one.close()


def old_python(place: Place) -> Path:
    """A "Python" whose ``dice_ls.server`` is the old one."""
    old = place.folder / "old-python"
    old.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "old_server.py"}"\n', encoding="utf-8")
    old.chmod(0o755)
    return old


def needs(program: Path | str, *clients: str) -> str:
    """The path of a program. Where a client could not be installed its tests skip with the reason; else they fail."""
    for reason in filter(Path.exists, (CLIENTS / "missing" / name for name in clients)):
        pytest.skip(reason.read_text(encoding="utf-8").strip())
    found = shutil.which(str(program))
    assert found, f"{program} is not installed: make test-editors"
    return found
