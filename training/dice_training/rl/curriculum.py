"""Which tasks a step draws: those that teach something more often, those that all or none solve after a rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

REVISIT = 2
"""Steps until a task of mixed results may be drawn again."""
FIRST_REST, LONGEST_REST = 4, 64
MIXED_WEIGHT = 3.0


@dataclass
class Record:
    """What is known of one task. ``rest`` is how long it rested last, ``due`` the first step that may draw it."""

    tries: int = 0
    solved: float | None = None
    """Share of the last group that was correct."""
    rest: int = 0
    due: int = 0

    @property
    def mixed(self) -> bool:
        return self.solved is not None and 0 < self.solved < 1


class Curriculum:
    """Records of the tasks of one phase, by id."""

    def __init__(self, ids: Sequence[str], seed: int) -> None:
        self.seed = seed
        self.records = {name: Record() for name in ids}

    def draw(self, step: int, count: int) -> list[str]:
        """``count`` different tasks (all there are, where there are fewer): those that are due, at random, mixed ones
        three times as likely; then those whose rest ends next."""
        rng = np.random.default_rng([self.seed, step])
        due = [name for name, record in self.records.items() if record.due <= step]
        weights = np.array([MIXED_WEIGHT if self.records[name].mixed else 1.0 for name in due])
        picked: list[str] = []
        if due:
            some = min(count, len(due))
            picked = [due[i] for i in rng.choice(len(due), some, replace=False, p=weights / weights.sum())]
        resting = sorted(self.records.keys() - set(due), key=lambda name: (self.records[name].due, name))
        return picked + resting[: count - len(picked)]

    def note(self, name: str, step: int, correct: Sequence[bool]) -> None:
        """The results of a group, excluded replies left out."""
        record = self.records[name]
        record.tries += 1
        if not correct:  # nobody could judge it: not now
            record.due = step + FIRST_REST
            return
        record.solved = sum(correct) / len(correct)
        if record.mixed:
            record.rest, record.due = 0, step + REVISIT
        else:
            record.rest = min(LONGEST_REST, max(FIRST_REST, 2 * record.rest))
            record.due = step + record.rest

    def to_json(self) -> dict[str, Any]:
        return {name: asdict(record) for name, record in self.records.items() if record.tries}

    def restore(self, data: dict[str, Any]) -> None:
        """Records of a run that goes on; tasks that are no longer there are forgotten."""
        for name, record in data.items():
            if name in self.records:
                self.records[name] = Record(**record)
