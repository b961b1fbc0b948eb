"""The processes of one run (``torchrun``) decode a step together: engines side by side, fed from one queue.

Every process draws the next task when it has room, so that a fast one takes more; what it decoded goes to the first
process, which has the judges. Nothing goes through files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from dice_training.ranks import Ranks
from dice_training.rl.rollout import Rollout, Sampler
from dice_training.rl.tasks import Task

Value = TypeVar("Value")
_AT_ONCE = 0.75
"""The share of its part of the tasks that a process takes at first; the rest goes to whoever is done."""
_POLL_SECONDS = 0.02


class Spread:
    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._store: Any = None
        if ranks.count > 1:
            store = dist.distributed_c10d._get_default_store()
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            self._store = dist.PrefixStore(f"rollouts {attempt}", store)  # type: ignore[reportPrivateImportUsage]

    def told(self, value: Value) -> Value:
        """What the first process says."""
        if self._store is None:
            return value
        held = [value]
        dist.broadcast_object_list(held, 0, device=torch.device("cpu"))
        return held[0]

    def same_weights(self, model: torch.nn.Module) -> None:
        """Those of the first process, in memory."""
        if self._store is not None:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)

    def decode(
        self, sampler: Sampler, step: int, tasks: Sequence[Task], replies: int, first_seed: int
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """(number of the task, its group), each as soon as it is whole: all of them in the first process, none in the
        others, which must be iterated all the same. Replies do not depend on who decodes them."""
        if self._store is None:
            yield from sampler.sample(tasks, replies, first_seed)
            return
        part = -(-len(tasks) // self.ranks.count)
        at_once = max(1, round(_AT_ONCE * part))
        own = sampler.sample(tasks, replies, first_seed, self._draw(step, len(tasks)), at_once)
        missing = set(range(len(tasks)))
        for number, rollouts in own:
            if not self.ranks.first:
                self._store.set(f"{step}/{number}", json.dumps([vars(rollout) for rollout in rollouts]))
                continue
            missing.discard(number)
            yield number, rollouts
            yield from self._arrived(step, missing)
        while self.ranks.first and missing:
            yield from self._arrived(step, missing)
            time.sleep(_POLL_SECONDS)

    def _draw(self, step: int, count: int) -> Iterator[int]:
        """Numbers below ``count``, each to one process only."""
        while (number := self._store.add(f"{step}/next", 1) - 1) < count:
            yield number

    def _arrived(self, step: int, missing: set[int]) -> Iterator[tuple[int, list[Rollout]]]:
        for number in sorted(missing):
            key = f"{step}/{number}"
            if self._store.check([key]):
                groups = json.loads(self._store.get(key))
                self._store.delete_key(key)
                missing.discard(number)
                yield number, [Rollout(**fields) for fields in groups]
