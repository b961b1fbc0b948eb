"""The verdict on one candidate, as every reader of the project sees it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

VerdictName = Literal[
    "verified",
    "no_gain",
    "correct_unmeasured",
    "mismatch",
    "build_error",
    "deceptive",
    "unsafe",
    "timeout",
    "crash",
    "no_plan",
    "infra_error",
]

OFFERABLE: frozenset[str] = frozenset({"verified", "correct_unmeasured"})
CORRECT: frozenset[str] = frozenset({"verified", "no_gain", "correct_unmeasured"})


@dataclass
class BuildInfo:
    backend: str = ""
    """``nvrtc``, ``nvrtc+host``, ``nvcc``, ``cpu``, ``cpu+host``."""
    seconds: float = 0.0
    log: str = ""


@dataclass
class Verdict:
    """Times in milliseconds, ``seconds`` for the whole judgement; ``speedup*`` is reference over candidate."""

    verdict: VerdictName
    rule: str | None = None
    reason: str = ""
    reference_ms: float | None = None
    candidate_ms: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    trials: int = 0
    device: str = ""
    build: BuildInfo = field(default_factory=BuildInfo)
    seconds: float = 0.0

    @property
    def offerable(self) -> bool:
        return self.verdict in OFFERABLE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Verdict:
        return Verdict(**{**data, "build": BuildInfo(**data["build"])})
