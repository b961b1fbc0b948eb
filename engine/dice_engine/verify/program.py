"""Programs that a runner can hold: how the text of a candidate or of a reference becomes something to run.

A program is loaded once, then run on cases that the judge sends. What it reports about itself (kept operators, guard
damage, launches) is a witness's word; the outputs are data, and only the judge knows what they should be.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any, Literal

import torch


@dataclass(frozen=True)
class RunOptions:
    """How one case is run."""

    launches: Literal["run", "fail", "skip"] = "run"
    poison: int = 0
    order: Literal["forward", "reverse", "shuffled", "watched"] = "forward"
    """Order of threads and blocks on the CPU backend; ``watched``: forward, and lost updates and stray loads show."""
    keep_results: bool = False
    """Return results of torch operators that have an output's shape."""
    reuse_inputs: bool = False
    """Give the inputs at the same addresses as the last case."""
    double: bool = False
    """Run in float64 (reference modules only)."""
    trace: bool = True
    """Guard zones, poison and operator trace; without it the case runs as a user would run it."""

    @staticmethod
    def from_message(message: dict[str, Any]) -> RunOptions:
        return RunOptions(**message)


@dataclass
class RunResult:
    """What one run gave. ``outputs`` is nested lists, tuples and dicts of tensors and plain values."""

    outputs: Any
    launches: int = 0
    damage: str | None = None
    race: str | None = None
    """A lost update that a watched run showed."""
    stray: str | None = None
    """A load from outside its buffers, or an index beyond its array, that a watched run showed."""
    misaligned: str | None = None
    """An address that a GPU refuses, that a watched run showed."""
    unasked: str | None = None
    """A launch that a GPU refuses because nobody asked for its shared memory."""
    mutated: list[str] = field(default_factory=list)
    """Inputs whose bits changed."""
    ops: dict[str, int] = field(default_factory=dict)
    results: list[torch.Tensor] = field(default_factory=list)
    pieces: list[torch.Tensor] = field(default_factory=list)
    """With ``keep_results``: results of other shapes."""
    shared_memory: list[str] = field(default_factory=list)
    """Which outputs lie in the memory of which outputs before them or inputs: ``1 in output 0``."""
    odd_outputs: list[str] = field(default_factory=list)
    """Outputs that are no plain tensors: a subclass, no storage, another device."""
    strides: list[list[int]] = field(default_factory=list)
    """Of every output tensor that is not contiguous; [] for one that is."""
    host_reads: int = 0
    """Floating numbers that the code took from its tensors to the host, weights aside."""
    threads: int = 0
    """Threads that the code started: what they do is out of the trace's sight."""
    overwritten: bool = False
    """Whether this run changed what the last one had returned."""
    poison_share: float = 0.0
    """Largest share of an output that still holds the poison of new memory."""
    seconds: float = 0.0


class ProgramError(Exception):
    """The program failed by itself. ``kind``: ``build_error``, ``crash``, ``no_plan`` or ``host_error``."""

    def __init__(self, kind: str, message: str, log: str = ""):
        super().__init__(message)
        self.kind = kind
        self.log = log


def explain(error: BaseException, filename: str) -> str:
    """One line for an exception of the program's own code, with the line of its text."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    where = f" (line {frames[-1].lineno}: {(frames[-1].line or '').strip()[:100]})" if frames else ""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}{where}"
