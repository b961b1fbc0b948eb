"""Ctrl-C ends long commands at once and without a word, whoever gets the signal, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROWS = """
__global__ void twice(const float* in, float* out, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = 2 * in[i];
}
void run_twice(const float* in, float* out, int n) { twice<<<(n + 255) / 256, 256>>>(in, out, n); }
"""
ENDLESS = ROWS.replace("if (i < n)", "while (i < n && out[n] != in[n])")
MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.tanh()
def get_inputs():
    return [torch.randn(8, 8)]
def get_init_inputs():
    return []
"""
FILES = {"model.py": MODEL, "rows.cu": ROWS, "endless.cu": ENDLESS}
COMMANDS = {
    "verify": ["verify", "--no-cache", "--device", "cpu", "rows.cu", "endless.cu"],
    "generate": ["generate", "--reference", "model.py", "-n", "64"],
    "bench decode": ["bench", "decode", "--device", "cpu"],
    "bench verify": ["bench", "verify", "--device", "cpu", "--rounds", "50"],
    "bench verify --field": [
        "bench",
        "verify",
        "--field",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--sample",
        "0",
    ],
}
TO: dict[str, Callable[[int], None]] = {
    "group": lambda pid: os.killpg(pid, signal.SIGINT),
    "parent": lambda pid: os.kill(pid, signal.SIGINT),
}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


def of(folder: Path) -> list[int]:
    """Processes that were started with this folder for temporary files."""
    mark = f"TMPDIR={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@needs_compiler
@pytest.mark.parametrize("to", TO)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("when", [0.3, 4.0])
def test_interrupted(tmp_path: Path, command: str, to: str, when: float) -> None:
    if when > 1 and to == "parent" and command != "verify":
        pytest.skip("once is enough")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    running = subprocess.Popen(
        [sys.executable, "-m", "dice_ls.cli", *COMMANDS[command]],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(when)
    assert running.poll() is None, running.communicate()
    begun = time.monotonic()
    TO[to](running.pid)
    _, errors = running.communicate(timeout=20)
    assert time.monotonic() - begun < 2.0  # a second, and another for a machine that is busy
    assert (running.returncode, errors) == (130, "")
    until = time.monotonic() + 3
    while of(temporary) and time.monotonic() < until:
        time.sleep(0.05)
    assert of(temporary) == []
    assert list(temporary.glob("dice-verify-*")) == []
