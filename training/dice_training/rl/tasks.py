"""What a phase trains on: rows with a hole, each with its prompt as the decoder will see it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import PromptError, build_prompt

from dice_training.cuke.verify import Row
from dice_training.data import DataError, read_rows, request_of
from dice_training.rl.recipe import Phase
from dice_training.tasks import read_tasks


@dataclass(frozen=True)
class Task:
    id: str
    row: Row
    """As in a CuKe file; prefix and suffix stay as they are whatever is written."""
    prompt: list[int]
    room: int
    """Tokens that a reply may have."""


def load_tasks(
    phase: Phase, tokenizer: DiceTokenizer, *, format: str, context: int, max_new_tokens: int
) -> tuple[list[Task], int]:
    """The tasks of a phase, and how many are left out because their prompt leaves too little room.

    A prompt is never cut: what the model cannot see it cannot be rewarded for.
    """
    path = Path(phase.data)
    rows = list(read_rows(path, "train")) if phase.kind == "infill" else read_tasks(path)
    tasks: list[Task] = []
    for number, row in enumerate(rows):
        try:
            prompt = build_prompt(request_of(row), tokenizer, format=format)
        except PromptError:
            continue
        room = min(max_new_tokens, context - len(prompt))
        if room >= min(max_new_tokens, context // 4):
            tasks.append(Task(f"{phase.kind}:{number}:{row['id']}", row, prompt, room))
    if not tasks:
        raise DataError(f"{path}: no task there fits the context of {context} tokens")
    return tasks, len(rows) - len(tasks)
