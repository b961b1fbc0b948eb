"""The verdict on one candidate, as every reader of the project sees it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dice_engine.typed import structure

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
class KernelUse:
    """What one launched kernel of the candidate takes of a multiprocessor (NVRTC's and the driver's word)."""

    name: str
    registers: int
    """A thread."""
    spills: int
    """Bytes a thread stores to memory because registers ran out."""
    shared_bytes: int
    """A block: static and dynamic."""
    threads: int | None = None
    """A block; unknown where the host code launches by itself."""
    occupancy: float | None = None
    """Share of a multiprocessor's warps that can be resident, 0 to 1."""


@dataclass
class GpuState:
    """The GPU right after the timed calls. Unknown values are None or empty."""

    name: str
    driver: str = ""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    throttle: list[str] = field(default_factory=list)
    """Why its clocks were held back (``power cap``), empty when they were not."""


@dataclass
class Verdict:
    """Times in milliseconds, ``seconds`` for the whole judgement; ``speedup*`` is reference over candidate.

    What was not measured is None: everything from ``bytes`` on needs a GPU.
    """

    verdict: VerdictName
    rule: str | None = None
    reason: str = ""
    reference_ms: float | None = None
    candidate_ms: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedups: dict[str, float] = field(default_factory=dict)
    """Against each baseline by name, where it was timed against several or another than ``eager``."""
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    trials: int = 0
    device: str = ""
    build: BuildInfo = field(default_factory=BuildInfo)
    seconds: float = 0.0
    bytes: int | None = None
    """What must cross the GPU's memory at least: inputs, weights and outputs once each, at the timed size."""
    bytes_per_second: float | None = None
    """``bytes`` over ``candidate_ms``."""
    roofline: float | None = None
    """``bytes_per_second`` as a share of what a copy reaches on this GPU in the same run."""
    registers: int | None = None
    """The most that any kernel of ``kernels`` takes; so are ``spills`` and ``shared_bytes``."""
    spills: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    """The least of ``kernels``."""
    kernels: list[KernelUse] = field(default_factory=list)
    gpu: GpuState | None = None

    def note_kernels(self, used: list[KernelUse]) -> None:
        """Take over what the candidate's kernels use."""
        self.kernels = used
        if used:
            self.registers = max(kernel.registers for kernel in used)
            self.spills = max(kernel.spills for kernel in used)
            self.shared_bytes = max(kernel.shared_bytes for kernel in used)
            known = [kernel.occupancy for kernel in used if kernel.occupancy is not None]
            self.occupancy = min(known, default=None)

    def note_traffic(self, moved: int, bandwidth: float) -> None:
        """``moved`` bytes in ``candidate_ms``; ``bandwidth`` in bytes a second."""
        if self.candidate_ms and moved:
            self.bytes = moved
            self.bytes_per_second = moved / (self.candidate_ms * 1e-3)
            self.roofline = self.bytes_per_second / bandwidth if bandwidth > 0 else None

    @property
    def offerable(self) -> bool:
        return self.verdict in OFFERABLE

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        if not self.speedups:
            del data["speedups"]
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> Verdict:
        """Raises TypeMismatch for data of another shape."""
        verdict: Verdict = structure(Verdict, data)
        return verdict
