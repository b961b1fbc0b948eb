"""What editor clients may rely on: the commands, and the shapes of what they and the notifications carry.

docs/protocol.md describes the same for readers; a test keeps both equal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

STATUS = "dice/status"
"""Notification to the client with a :class:`Status`, whenever something in it changes."""

Where = Literal["hole", "module", "selection", "workspace", "none"]


@dataclass(frozen=True)
class Command:
    """A command of the server. ``where`` says what its one argument names (docs/protocol.md)."""

    command: str
    title: str
    where: Where
    palette: bool = True
    """Whether a person may start it from a list of commands; the others are made for lenses and actions."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


COMMANDS = (
    Command("dice.findFaster", "Find a faster version of the code at the cursor", "hole"),
    Command("dice.rewriteKernel", "Rewrite the kernel at the cursor", "hole"),
    Command("dice.rewriteModule", "Rewrite the PyTorch module at the cursor", "module"),
    Command("dice.rewriteSelection", "Rewrite the selected statements", "selection"),
    Command("dice.checkKernel", "Check my kernel against its reference", "hole"),
    Command("dice.applySuggestion", "Apply the best verified rewrite", "hole"),
    Command("dice.insertAnnotation", "Insert a @dice annotation", "hole"),
    Command("dice.showEvidence", "Show the evidence", "hole"),
    Command("dice.showTrace", "Show the denoising trace", "hole"),
    Command("dice.cancel", "Cancel the search", "hole"),
    Command("dice.status", "Show what DICE is doing", "none"),
    Command("dice.pause", "Pause the engine's work", "none"),
    Command("dice.resume", "Resume the engine's work", "none"),
    Command("dice.restartEngine", "Restart the engine", "none"),
    Command("dice.selectCheckpoint", "Select a checkpoint", "none"),
    Command("dice.trustWorkspace", "Trust this workspace", "workspace"),
    Command("dice.untrustWorkspace", "Stop trusting this workspace", "workspace"),
    Command("dice.clearCache", "Clear results and cached verdicts", "none"),
)


class EngineStatus(TypedDict):
    running: bool
    pid: int | None
    version: str
    models: list[str]
    """Loaded checkpoints."""


class Status(TypedDict):
    """The parameters of ``dice/status`` and the result of ``dice.status``, ``dice.pause`` and ``dice.resume``."""

    state: Literal["idle", "starting", "decoding", "checking", "paused", "unavailable"]
    device: str
    """The device the engine runs on, as it names it; empty until it has said so."""
    engine: EngineStatus
    queue: int
    """Requests that run or wait."""
    running: str
    """The name of the kernel or module at work, else empty."""
    waiting_for: str
    """What the work waits for, in words: ``the engine to start``, ``the model to load``, ``an answer about trust``."""
    message: str
    """What is wrong and what to do, when ``state`` is ``unavailable``; else empty."""


class HowTested(TypedDict):
    """One line of "how this was tested": ``grid``, ``(n + 255) / 256``, ``launch in run_f, line 9``."""

    what: str
    value: str
    origin: str


class PlanEvidence(TypedDict):
    source: str
    """``recorded``, ``inputs``, ``host``, ``launch``, ``annotation``, ``convention`` or ``no_plan``."""
    reason: str | None
    """Why there is no plan."""
    how: list[HowTested]
    sizes: list[dict[str, int]]
    """The sizes results are compared at."""
    measured_at: dict[str, int]
    """The sizes times are measured at."""
    tolerance: dict[str, float] | None
    """``rel`` and ``abs``, when an annotation sets them; else they follow from dtype and scale."""


class CandidateEvidence(TypedDict):
    index: int
    core: str
    """What the model wrote between the user's own bytes."""
    offerable: bool
    """Whether it is offered: verified, or correct where nothing can be timed."""
    verdict: dict[str, Any] | None
    """The JSON of ``dice verify``; null until it was judged."""
    seconds: float
    """Time from the decoded candidate to its verdict."""
    tokens: int
    has_trace: bool


class Evidence(TypedDict):
    """The result of ``dice.showEvidence``."""

    uri: str
    hole: str
    kind: str
    name: str
    state: Literal["none", "queued", "starting", "decoding", "checking", "done", "failed", "cancelled"]
    stale: bool
    """Whether the candidates belong to an earlier text of this code: shown, not applied."""
    summary: str
    plan: PlanEvidence
    candidates: list[CandidateEvidence]
    """Best first: those that are offered, then the others."""
    device: str
    checkpoint: str
    when: str
    """End of the check, ISO 8601 with the zone; empty while there is none."""
    markdown: str
    """The same for a person, in Markdown."""


class TraceToken(TypedDict):
    text: str
    step: int
    """The forward pass that settled this token, counted from 0 in its block."""
    block: int


class Trace(TypedDict):
    """The result of ``dice.showTrace``: the candidate's tokens in order. ``text`` of all of them is the core."""

    hole: str
    candidate: int
    block_size: int
    tokens: list[TraceToken]
