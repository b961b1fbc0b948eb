"""``dice`` with an output that is full or closed, and files that never end: one line, an exit status, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """__global__ void twice(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * 2.0f;
}
"""
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def dice(
    *arguments: str | Path, to: str = "> /dev/full", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    line = ["bash", "-c", f'"$@" {to}', "dice", sys.executable, "-m", "dice_ls.cli", *map(str, arguments)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "twice.cu"
    path.write_text(KERNEL)
    return path


@pytest.mark.parametrize("command", ["holes FILE", "holes FILE --json", "doctor", "verify FILE WRONG --json"])
def test_a_full_output_is_one_line(file: Path, command: str) -> None:
    wrong = file.with_name("wrong.cu")
    wrong.write_text(KERNEL.replace("out[i] = in[i] * 2.0f", ""))
    words = {"FILE": str(file), "WRONG": str(wrong)}
    done = dice(*(words.get(word, word) for word in command.split()))
    assert done.returncode == 2, done
    assert "No space left on device" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_closed_output_is_no_fault(file: Path) -> None:
    done = dice("holes", file, to=">&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["holes PIPE", "suggest PIPE", "verify PIPE PIPE"])
def test_a_pipe_is_no_source_file(tmp_path: Path, command: str) -> None:
    pipe = tmp_path / "pipe.cu"
    os.mkfifo(pipe)
    done = dice(*(str(pipe) if word == "PIPE" else word for word in command.split()), to="")
    assert done.returncode == 2, done
    assert "not a regular file" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_recording_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".dice").write_text("a file where the folder would be")
    program = tmp_path / "program.py"
    program.write_text("import torch\nprint(torch.ones(3).exp().sum().item())\n")
    done = dice("record", "--", sys.executable, program, to="", cwd=tmp_path)
    assert done.returncode == 2, done
    assert "cannot write" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
