"""A handful of random faults, a different handful each time; tests/bench/inject_faults.py does hundreds."""

from __future__ import annotations

import platform
import random
import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from faults import CANDIDATES, FAULTS, Trials, killed_judge

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++"),
    pytest.mark.skipif(platform.system() != "Linux", reason="looks for processes in /proc"),
]
_SECONDS = 8.0


def test_a_working_system_remains(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    until, said = time.monotonic() + _SECONDS, []
    names = [name for name in FAULTS if name != "fill the disk"]  # that needs a small one: see the script
    with Trials(tmp_path, seed, [*names, *CANDIDATES]) as trials:
        while time.monotonic() < until:
            said.append(trials.one())
    print(f"seed {seed}:", *said, sep="\n")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_judge_leaves_nothing(tmp_path: Path) -> None:
    killed_judge(tmp_path, random.Random())
