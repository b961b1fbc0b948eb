"""A plan: how a kernel or a module is run, and where each part of that knowledge came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PlanSource = Literal["launch", "host", "annotation", "inputs", "recorded", "convention", "no_plan"]


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel or of a host wrapper, as declared."""

    name: str
    ctype: str
    """Element or value type without qualifiers: ``float``, ``int``, ``Elem``, ``cudaStream_t``."""
    pointer: bool = False
    const: bool = False


@dataclass(frozen=True)
class Fill:
    """How a buffer or scalar is filled: ``normal``, ``uniform`` or ``int`` (both in [low, high)), ``prefix_sum``."""

    kind: str
    low: str = "0"
    high: str = "1"


@dataclass(frozen=True)
class Buffer:
    """A device buffer: ``extent`` is an expression over the size symbols, in elements."""

    name: str
    role: Literal["in", "out", "inout", "tmp"]
    extent: str
    fill: Fill = Fill("normal")


@dataclass(frozen=True)
class Tolerance:
    rel: float
    abs: float


@dataclass(frozen=True)
class Plan:
    """How to run the code around a hole.

    Kernel plans: either ``wrapper`` names a host function of the same file whose call launches the kernel (its
    parameters are ``params``, and where it takes torch tensors ``arguments`` makes them), or
    ``grid``/``block``/``shared`` are expressions over the sizes and ``params`` are the kernel's own. Module plans
    (``inputs``) need nothing more than the file itself.
    """

    source: PlanSource
    reason: str | None = None
    kernel: str | None = None
    wrapper: str | None = None
    params: tuple[Param, ...] = ()
    grid: tuple[str, str, str] | None = None
    block: tuple[str, str, str] | None = None
    shared: str = "0"
    buffers: tuple[Buffer, ...] = ()
    templates: tuple[dict[str, str], ...] = ({},)
    """Template bindings to check, one dict an instantiation: ``{"Elem": "float", "kWarps": "4"}``."""
    sizes: tuple[dict[str, int], ...] = ()
    scalars: dict[str, Fill] = field(default_factory=dict)
    """Parameters that are neither buffers nor sizes, and how their values are drawn."""
    tolerance: Tolerance | None = None
    fixture: str | None = None
    """``path.py:function`` that makes the arguments, when an annotation names one."""
    host_source: str | None = None
    """CUDA text that defines ``wrapper``, made of the file's ``main``; it stands after the file's own text."""
    through: str | None = None
    """For a kernel of a header: the full path of the source that includes it and in which it is run."""
    init: tuple[str, ...] = ()
    """Beside a fixture: Python expressions for the arguments of a module's constructor."""
    arguments: tuple[str, ...] = ()
    """For a wrapper that takes torch tensors: a Python expression over the sizes for each argument of its call."""
    inputs_source: str | None = None
    """Python text that defines ``get_inputs`` and ``get_init_inputs`` for a module, made from its annotation; it
    stands after the file's own text and so overrides what the file defines."""
    origin: dict[str, str] = field(default_factory=dict)
    """Where each part came from: ``{"grid": "launch in run_axpb, line 15", ...}``; shown to the user."""

    @property
    def runnable(self) -> bool:
        return self.source != "no_plan"

    @staticmethod
    def none(reason: str) -> Plan:
        return Plan(source="no_plan", reason=reason)
