"""The replies to one step's tasks, on their way: decoded at once or in the background, handed to the judges as they
come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from dice_training.judging import Pending
from dice_training.rl.recipe import Phase
from dice_training.rl.rollout import Rollout
from dice_training.rl.tasks import Task

Groups = Iterator[tuple[int, list[Rollout]]]
Decoded = list[tuple[Task, list[Rollout], Pending]]


@dataclass(frozen=True)
class Plan:
    """What a step is about. ``lag``: updates of the weights between those that decode and those that learn from it."""

    step: int
    phase: Phase
    tasks: Sequence[Task]
    lag: int


class Decoding:
    """``groups`` decodes, ``judge`` hands a group to the judges; ``background``: in a thread, from now on."""

    def __init__(
        self,
        plan: Plan,
        groups: Groups,
        judge: Callable[[Task, list[Rollout]], Pending],
        device: torch.device,
        background: bool,
    ) -> None:
        self.plan = plan
        self.seconds = 0.0
        self._groups, self._judge, self._device = groups, judge, device
        self._decoded: Decoded = []
        self._error: BaseException | None = None
        self._cancelled = False
        self._weights_there = torch.cuda.current_stream().record_event() if device.type == "cuda" else None
        self._thread = threading.Thread(target=self._in_background, name="rollouts") if background else None
        if self._thread is not None:
            self._thread.start()

    def result(self) -> Decoded:
        """All groups, with their judgements still to come. Raises what decoding raised."""
        if self._thread is None:
            self._decode()
        else:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._decoded

    def cancel(self) -> None:
        """Stop after the group that is next, and wait for that."""
        self._cancelled = True
        if self._thread is not None:
            self._thread.join()

    def _in_background(self) -> None:
        try:
            if self._weights_there is None:
                self._decode()
                return
            # A stream of its own: on the default one its kernels would wait for those of the update.
            stream = torch.cuda.Stream(self._device)
            with torch.cuda.stream(stream):
                stream.wait_event(self._weights_there)
                self._decode()
                stream.synchronize()
        except BaseException as error:  # raised again where the result is asked for
            self._error = error

    def _decode(self) -> None:
        started = time.monotonic()
        for number, rollouts in self._groups:
            if self._cancelled:
                break
            task = self.plan.tasks[number]
            self._decoded.append((task, rollouts, self._judge(task, rollouts)))
        self._groups.close()  # type: ignore[attr-defined]
        self.seconds = time.monotonic() - started
