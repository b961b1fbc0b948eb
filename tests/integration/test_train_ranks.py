"""``dice train sft`` under ``torchrun``: a process that is killed ends the job, which goes on from its last state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dice_engine.model.weights import load_model

RECIPE = """
data = "{folder}/data.jsonl"
output = "{folder}/out"
steps = {steps}
row_length = 640
batch_rows = 1
accumulate = 2
save_every = 5
eval_every = 0
shard = true
quantize = false
[shape]
layers = 2
hidden = 16
intermediate = 32
heads = 2
kv_heads = 1
head_dim = 8
vocab = 800
context = 400
"""


def command(folder: Path, count: int, *options: str) -> list[str]:
    run = ["-m", "dice_training", "train", "sft", str(folder / "recipe.toml"), *options]
    if count == 1:
        return [sys.executable, *run]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *run]


def workers(launcher: int) -> list[int]:
    """The processes of the job, in the order of their ranks."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rsplit(")", 1)[1].split()
            words = dict(word.split(b"=", 1) for word in (path / "environ").read_bytes().split(b"\0") if word)
        except (OSError, ValueError):
            continue
        if int(status[1]) == launcher and b"RANK" in words:
            found[int(words[b"RANK"])] = int(path.name)
    return [found[rank] for rank in sorted(found)]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
def test_a_killed_process_ends_the_job_which_goes_on_with_fewer(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in Path("tests/data/handmade.jsonl").read_text().splitlines()]
    shortest = min(rows, key=lambda row: len(row["reference"] + row["program"]))
    lines = [json.dumps({**shortest, "split": "train"})] * 4
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=tmp_path, steps=100_000))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    job = subprocess.Popen(
        command(tmp_path, 2), env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    state = tmp_path / "out" / "state"
    until = time.monotonic() + 240
    while not list(state.glob("step-*/progress.json")):
        assert job.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    os.kill(workers(job.pid)[1], signal.SIGKILL)
    _, told = job.communicate(timeout=120)
    assert job.returncode != 0
    ours = [line for line in told.splitlines() if line.startswith("dice train:")]
    (saved,) = (path.parent for path in state.glob("step-*/progress.json"))
    step = int(saved.name.removeprefix("step-"))
    assert step >= 5 and step % 5 == 0
    assert ours == [
        "dice train: another process of this run has ended; the run stops, "
        f"and --resume goes on from the state at step {step}"
    ]

    recipe.write_text(RECIPE.format(folder=tmp_path, steps=step + 10))
    alone = subprocess.run(
        command(tmp_path, 1, "--resume"), env=environment, capture_output=True, text=True, timeout=240
    )
    assert alone.returncode == 0, alone.stderr
    assert f"resumed at step {step}" in alone.stderr and alone.stdout.strip() == str(tmp_path / "out")
    assert [path.name for path in state.iterdir()] == [f"step-{step + 10:08d}"]
    assert load_model(tmp_path / "out").config.num_hidden_layers == 2


def test_what_is_wrong_is_said_once(tmp_path: Path) -> None:
    """By all processes together."""
    (tmp_path / "recipe.toml").write_text(f'data = "{tmp_path}/none.jsonl"\noutput = "{tmp_path}/out"\n')
    job = subprocess.run(
        command(tmp_path, 2),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert job.returncode != 0
    (line,) = [line for line in job.stderr.splitlines() if "dice train:" in line]
    assert line == f"dice train: {tmp_path}/none.jsonl: cannot be read: No such file or directory"
