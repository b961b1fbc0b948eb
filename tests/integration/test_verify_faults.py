"""Each fault at a few moments; tests/bench/inject_faults.py does hundreds at random ones."""

from __future__ import annotations

import platform
import random
import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import HONEST, REFERENCE, module
from dice_engine.verify.session import VerifySession
from faults import CANDIDATES, FAULTS, ORIGINAL, RIGHT, WRONG, Trials, killed_judge

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++"),
    pytest.mark.skipif(platform.system() != "Linux", reason="looks for processes in /proc"),
]
_SECONDS = 8.0


def test_a_working_system_remains(tmp_path: Path) -> None:
    seed = 20
    until, said = time.monotonic() + _SECONDS, []
    names = [name for name in FAULTS if name != "fill the disk"]  # that needs a small one: see the script
    with Trials(tmp_path, seed, [*names, *CANDIDATES]) as trials:
        while time.monotonic() < until:
            said.append(trials.one())
    print(f"seed {seed}:", *said, sep="\n")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_judge_leaves_nothing(tmp_path: Path) -> None:
    killed_judge(tmp_path, random.Random())


def test_a_reference_that_is_lost_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    with VerifySession("cpu", workdir=tmp_path, threads=1) as session:
        # A wrong candidate is refused on the first case, so the others are still to be asked for.
        assert session.verify_kernel(ORIGINAL, WRONG, "axpb").verdict == "mismatch"
        for held in session._kernels.values():
            held.worker._channel.sock.shutdown(2)
        assert session.verify_kernel(ORIGINAL, RIGHT + "//", "axpb").verdict == "correct_unmeasured"
        assert (
            session.verify_module(REFERENCE, module("return ext.run(x, self.factor + 1.0)")).verdict
            == "mismatch"
        )
        for held in session._modules.values():
            held.worker._channel.sock.shutdown(2)
        assert session.verify_module(REFERENCE, HONEST["plain"]).verdict == "correct_unmeasured"
