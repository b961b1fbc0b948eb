"""Runners made ahead: one at a time, never a dead one, ended ones closed behind."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from dice_engine.verify.spares import Spares
from dice_engine.verify.worker import Failed


class Runner:
    """Counts what is asked of it; a process is not needed to see who makes and ends runners when."""

    def __init__(self, prepares: bool = True) -> None:
        self.prepares, self.dead, self.prepared = prepares, False, False
        self.closed = threading.Event()

    def ask(self, request: str, timeout: float) -> None:
        assert request == "prepare"
        if not self.prepares:
            raise Failed("infra_error", "no GPU")
        self.prepared = True

    def close(self) -> None:
        time.sleep(0.05)
        self.dead = True
        self.closed.set()


def spares(*runners: Runner) -> Any:
    waiting = list(runners)
    make: Any = lambda: waiting.pop(0)  # noqa: E731
    return Spares(make)


def test_a_runner_is_ready_when_it_is_needed() -> None:
    first, second = Runner(), Runner()
    held = spares(first, second)
    held.refill()
    held.refill()
    assert held.take() is first
    assert first.prepared
    assert held.take() is second, "none was ready: made now"
    assert not second.prepared
    held.close()


def test_dead_and_unprepared_runners_are_not_handed_out() -> None:
    dead, good, broken, last = Runner(), Runner(), Runner(prepares=False), Runner()
    held = spares(dead, good, broken, last)
    held.refill()
    held.settle()
    dead.dead = True
    assert held.take() is good
    held.refill()
    assert held.take() is last
    assert broken.closed.is_set()
    held.close()


def test_where_none_can_be_made_the_one_who_needs_it_is_told() -> None:
    def fails() -> Any:
        raise Failed("infra_error", "no more processes")

    held = Spares(fails)
    held.refill()
    with pytest.raises(Failed, match="no more processes"):
        held.take()
    held.close()


def test_burying_does_not_wait_but_settling_and_closing_do() -> None:
    runner, other, spare = Runner(), Runner(), Runner()
    held = spares(spare)
    held.refill()
    started = time.monotonic()
    held.bury(runner)
    assert time.monotonic() - started < 0.04
    held.settle()
    assert runner.dead
    held.bury(other)
    held.close()
    assert other.dead
    assert spare.dead
