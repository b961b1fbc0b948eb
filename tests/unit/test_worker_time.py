"""Whose time it is: a program's, or that of the compilers it waits for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from dice_engine.verify.build.process import Builds
from dice_engine.verify.protocol import Channel, Closed
from dice_engine.verify.worker import Failed, Worker

NONCE = b"n" * 16


def ask(script: Sequence[float | bool], **limits: float) -> Any:
    """What a worker makes of a runner that waits (numbers) and says that it builds or has built (bools)."""
    ours, theirs = socket.socketpair()
    worker = Worker.__new__(Worker)
    worker.dead = False
    worker._channel = Channel(ours, NONCE)

    def close() -> bool:
        worker.dead = True
        return True

    worker.close = close  # type: ignore[method-assign]

    def run() -> None:
        runner = Channel(theirs, NONCE)
        runner.receive(5.0)
        with contextlib.suppress(Closed, OSError):
            for step in script:
                if isinstance(step, bool):
                    runner.send({"building": step})
                else:
                    time.sleep(step)
            runner.send({"value": "done"})

    threading.Thread(target=run, daemon=True).start()
    with ours, theirs:
        return worker.ask("load_module", **limits)


def test_a_build_has_time_of_its_own() -> None:
    assert ask([True, 0.5, False, 0.05], timeout=0.3, building=2.0) == "done"


@pytest.mark.parametrize(
    ("script", "limits", "words"),
    [
        ([0.6], {"timeout": 0.2, "building": 5.0}, "after 0 s"),
        ([True, 0.6], {"timeout": 5.0, "building": 0.2}, "of building"),
        ([True, 0.1, False, 0.6], {"timeout": 0.2, "building": 5.0}, "load module"),
        ([True, 0.6], {"timeout": 0.2}, "no result"),
    ],
)
def test_each_time_is_limited(script: list[float | bool], limits: dict[str, float], words: str) -> None:
    begun = time.monotonic()
    with pytest.raises(Failed, match=words) as caught:
        ask(script, **limits)
    assert caught.value.verdict == "timeout"
    assert time.monotonic() - begun < 0.55


def test_saying_that_one_builds_wins_no_time_for_ever() -> None:
    begun = time.monotonic()
    with pytest.raises(Failed):
        ask([True, 0.05, False, 0.05] * 40, timeout=0.4, building=0.4)
    assert time.monotonic() - begun < 1.5


def test_overlapping_builds_are_told_once() -> None:
    told: list[bool] = []
    Builds.listener = told.append
    try:
        with Builds.one(), Builds.one():
            assert told == [True]
        assert told == [True, False]
    finally:
        Builds.listener = None
