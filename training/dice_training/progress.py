"""How far a long command is: in a terminal a bar with rate and time left, elsewhere a line every ten seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

_LINE_SECONDS = 10.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0.0:.1f}/s", style="progress.data.speed")


class Progress:
    """``total`` steps of ``what``. Use as a context manager; everything goes to standard error."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
        self._began = self._told = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate())
        self._bar: Bar | None = None
        if self._console.is_terminal:
            self._bar = Bar(*columns, TimeRemainingColumn(), console=self._console)
            self._bar.add_task(what, total=total)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, words: str) -> None:
        """A line of its own, above the bar."""
        self._console.print(words)

    def advance(self, words: str = "") -> None:
        """One step more. ``words`` stand in the next line about it, where there is no bar."""
        self.done += 1
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])
            return
        now = time.monotonic()
        if now - self._told > _LINE_SECONDS or self.done == self.total:
            self._told = now
            rate = self.done / max(now - self._began, 1e-9)
            left = (self.total - self.done) / rate
            middle = f", {words}" if words else ""
            self.note(f"{self.done}/{self.total} {self.what}, {rate:.1f}/s{middle}, {left:.0f} s left")
