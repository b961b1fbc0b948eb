"""The editor's engine on another machine: its socket forwarded here. A relay stands for ssh, all else is real."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from dice_engine import wire
from dice_engine.client import EngineClient, EngineError
from dice_engine.runtime import host_path, lock
from faults import ORIGINAL, WRONG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forwards Unix sockets")

SSH = '''#!{python}
"""ssh HOST COMMAND, and ssh -N -o NAME=VALUE -L LOCAL:REMOTE HOST, to the folder that is another machine here."""
import asyncio, os, subprocess, sys

arguments = sys.argv[1:]
if "-L" not in arguments:
    assert arguments[0] == "gpubox"
    sys.exit(subprocess.call(arguments[1], shell=True, env={{**os.environ, "DICE_RUNTIME_DIR": "{far}"}}))
assert arguments[0] == "-N" and arguments[-1] == "gpubox"
options = dict(arguments[i + 1].split("=") for i, name in enumerate(arguments) if name == "-o")
near, _, far = arguments[arguments.index("-L") + 1].partition(":")
assert options["StreamLocalBindUnlink"] == "yes"
os.umask(int(options["StreamLocalBindMask"], 8))

async def pump(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()

async def relay(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_unix_connection(far)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

async def main():
    server = await asyncio.start_unix_server(relay, near)
    await server.serve_forever()

asyncio.run(main())
'''


@dataclass
class Line:
    near: Path
    far: Path
    process: subprocess.Popen[str]


def engine(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dice_engine.service", *arguments]
    environment = {**os.environ, "DICE_RUNTIME_DIR": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """``dice serve --on gpubox``, up and answering."""
    with tempfile.TemporaryDirectory(prefix="dice-") as folder:
        near, far, tools = (Path(folder) / name for name in ("near", "far", "bin"))
        tools.mkdir()
        (tools / "ssh").write_text(SSH.format(python=sys.executable, far=far))
        (tools / "ssh").chmod(0o755)
        monkeypatch.setenv("DICE_RUNTIME_DIR", str(near))
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        command = [sys.executable, "-m", "dice_engine.service", "--on", "gpubox"]
        theirs = ["--remote-dice", f"{sys.executable} -m dice_ls.cli"]
        process = subprocess.Popen([*command, *theirs], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("the engine of gpubox (")
            yield Line(near, far, process)
        finally:
            process.terminate()
            process.wait(30)
            engine(far, "--stop")


@pytest.mark.asyncio
async def test_verdicts_come_from_where_the_engine_is(line: Line) -> None:
    mode = stat.S_IMODE((line.near / "engine.sock").stat().st_mode)
    assert mode == 0o600 and stat.S_IMODE(line.near.stat().st_mode) == 0o700
    client = await EngineClient.connect(start=False)
    there = engine(line.far, "--status").stdout
    assert f"pid {client.pid}," in there
    verdict = await client.verify(wire.VerifyRequest("", ORIGINAL, WRONG, "axpb", device="cpu"))
    assert verdict.verdict == "mismatch"
    await client.close()
    # No engine of this machine takes the socket over.
    second = engine(line.near)
    assert second.returncode == 0 and "an engine runs already" in second.stderr
    again = engine(line.near, "--on", "gpubox")
    assert again.returncode == 2 and again.stderr.count("\n") == 1


@pytest.mark.asyncio
async def test_the_end_of_the_other_engine_ends_the_line(line: Line) -> None:
    assert engine(line.far, "--stop").returncode == 0
    assert line.process.wait(30) == 1
    assert not (line.near / "engine.sock").exists() and not (line.near / "engine.host").exists()
    with pytest.raises(EngineError, match="no engine is running"):
        await EngineClient.connect(start=False)


@pytest.mark.asyncio
async def test_an_end_by_hand_leaves_the_other_engine(line: Line) -> None:
    line.process.send_signal(signal.SIGINT)
    assert line.process.wait(30) in (0, 130)
    assert engine(line.far, "--status").returncode == 0
    assert not (line.near / "engine.sock").exists()


@pytest.mark.asyncio
async def test_an_engine_elsewhere_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="dice-") as folder:
        monkeypatch.setenv("DICE_RUNTIME_DIR", folder)
        host_path().write_text("gpubox")
        with lock("engine.lock", wait=False) as held:
            assert held
            started = time.monotonic()
            with pytest.raises(
                EngineError, match="the engine of gpubox does not answer; see dice serve --on gpubox"
            ):
                await EngineClient.connect()
            assert time.monotonic() - started < 5


def test_a_host_without_dice_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="dice-") as folder:
        failed = engine(Path(folder), "--on", "gpubox")
    assert failed.returncode == 2 and failed.stderr.count("\n") == 1
    assert "gpubox gives no engine" in failed.stderr and "--remote-dice" in failed.stderr
