"""What host code computes with: typed numbers, pointers, launch geometry, and the world it asks things of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class Unsupported(Exception):
    """The interpreter does not understand this host code; compile it instead. The message says what and which line."""


class HostError(Exception):
    """The host code itself refused: a failed ``TORCH_CHECK``, a throw, an exit."""


@dataclass(frozen=True)
class Pointer:
    """A device pointer: ``offset`` elements of ``ctype`` behind the start of ``base`` (a tensor or a named buffer)."""

    base: Any
    offset: int
    ctype: str


@dataclass(frozen=True)
class LaunchCall:
    """One kernel launch. ``args`` are plain: Pointer, int, float, bool, or None for a null pointer."""

    kernel: str
    template_args: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Dtype:
    """An element type by torch's own name: ``float32``, ``bfloat16``, ``int64``..."""

    name: str


@dataclass(frozen=True)
class Device:
    type: str
    index: int = 0


class Runtime(Protocol):
    """The world behind the host code. Tensors are opaque; every other value crosses as plain Python.

    Arguments arrive as int, float, bool, str, None (nullopt, undefined tensor), lists of those, tensors, ``Pointer``,
    ``Dtype`` and ``Device``; the same may be returned (a ``torch.dtype`` or ``torch.device`` is understood too).
    Methods that are not offered raise ``Unsupported``. Beyond torch's own functions, ``torch_function`` is asked for
    ``cuda.device_property`` (name), ``cuda.memset`` (pointer, value, bytes) and ``cuda.memcpy`` (to, from, bytes).
    """

    def is_tensor(self, value: Any) -> bool: ...

    def tensor_method(self, tensor: Any, name: str, args: list[Any], template: str | None) -> Any: ...

    def torch_function(self, name: str, args: list[Any], kwargs_options: dict[str, Any]) -> Any: ...

    def launch(self, call: LaunchCall) -> None: ...


@dataclass(frozen=True)
class Num:
    """A C arithmetic value; ``kind`` is one of the machine types of ``host_types``."""

    value: int | float
    kind: str


@dataclass
class Dim3:
    x: int = 1
    y: int = 1
    z: int = 1

    def as_tuple(self) -> tuple[int, int, int]:
        return (self.x, self.y, self.z)


@dataclass
class Cell:
    """A variable. ``ctype`` is the declared type as text, already resolved, or "" where anything may be stored."""

    value: Any
    ctype: str = ""

    def get(self) -> Any:
        return self.value

    def set(self, value: Any) -> None:
        self.value = value


@dataclass
class FieldRef:
    """A settable member (``grid.x``)."""

    owner: Dim3
    name: str

    def get(self) -> Any:
        return Num(getattr(self.owner, self.name), "uint32")

    def set(self, value: Any) -> None:
        setattr(self.owner, self.name, int(value.value) if isinstance(value, Num) else int(value))


@dataclass
class ItemRef:
    """A settable element of a host array or vector."""

    owner: list[Any]
    index: int

    def get(self) -> Any:
        return self.owner[self.index]

    def set(self, value: Any) -> None:
        self.owner[self.index] = value


Place = Cell | FieldRef | ItemRef


@dataclass(frozen=True)
class Address:
    """``&variable``: a host pointer."""

    place: Place


@dataclass(frozen=True)
class KernelRef:
    """A kernel, perhaps with template arguments: what ``auto entry = &row_peak<float, 4>`` holds."""

    name: str
    template_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class FunctionRef:
    name: str
    template_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Closure:
    """A lambda with the scope it sees (captures are all by reference)."""

    node: Any
    scope: Scope


@dataclass(frozen=True)
class Options:
    """``torch::TensorOptions``."""

    values: tuple[tuple[str, Any], ...] = ()

    def having(self, **changes: Any) -> Options:
        return Options(tuple({**dict(self.values), **changes}.items()))


@dataclass(frozen=True)
class TensorKind:
    """The deprecated ``x.type()``."""

    tensor: Any


@dataclass(frozen=True)
class Opaque:
    """A value that only passes through: a stream, a guard, an error code."""

    what: str


@dataclass
class Scope:
    """Names in sight: variables, and type names with what they stand for."""

    parent: Scope | None = None
    cells: dict[str, Place] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Place | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.cells:
                return scope.cells[name]
            scope = scope.parent
        return None

    def find_type(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.types:
                return scope.types[name]
            scope = scope.parent
        return None

    def inner(self) -> Scope:
        return Scope(self)


class Missing:
    """Where ``None`` would mean null: nothing at all (a function without a value)."""


VOID = Missing()
