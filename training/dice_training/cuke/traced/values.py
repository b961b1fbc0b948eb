"""What a traced module computes, as a graph of values: each knows how one of its elements is written in CUDA.

Nothing here has a memory layout. Which values get memory, and which kernel computes them, is decided by ``kernels``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from dice_training.cuke.traced.emit import Emitter, Index

ReduceOp = Literal["sum", "prod", "max", "min", "argmax", "argmin"]


class Unwritten(Exception):
    """The teacher cannot write this; the message names the operator or the reason, for ``dice cuke coverage``."""


@dataclass(frozen=True)
class Dim:
    """A size: its value in the trace, and the C++ expression that gives it on the host (``x.size(1)``)."""

    value: int
    text: str

    @property
    def literal(self) -> bool:
        return self.text.isdigit()


Shape = tuple[Dim, ...]
ONE = Dim(1, "1")


def constant(value: int) -> Dim:
    return Dim(value, str(value))


def values(shape: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(dim.value for dim in shape)


def _factor(dim: Dim) -> str:
    return f"({dim.text})" if any(sign in dim.text for sign in "+-/") else dim.text


def times(dims: Sequence[Dim]) -> Dim:
    """The product, without factors of one."""
    real = [dim for dim in dims if dim.text != "1"]
    if not real:
        return ONE
    if all(dim.literal for dim in real):
        return constant(prod(dim.value for dim in real))
    if len(real) == 1:
        return real[0]
    return Dim(prod(dim.value for dim in real), " * ".join(_factor(dim) for dim in real))


def plus(a: Dim, b: int | Dim) -> Dim:
    other = constant(b) if isinstance(b, int) and b >= 0 else b
    if isinstance(other, int):
        return Dim(a.value + other, f"{a.text} - {-other}") if not a.literal else constant(a.value + other)
    if other.value == 0 and other.literal:
        return a
    if a.literal and other.literal:
        return constant(a.value + other.value)
    return Dim(a.value + other.value, f"{a.text} + {other.text}")


@dataclass(eq=False, kw_only=True)
class Value:
    shape: Shape
    dtype: torch.dtype
    name: str = ""
    """The PyTorch operator it comes from: names kernels and memory."""
    uses: int = field(default=0, init=False)
    memory: Buffer | None = field(default=None, init=False)
    """Where an earlier kernel has written it."""

    @property
    def arguments(self) -> tuple[Value, ...]:
        return ()


@dataclass(eq=False, kw_only=True)
class Buffer(Value):
    """Memory: an input, a weight, or what an earlier kernel wrote. ``text``: the C++ tensor variable."""

    text: str
    nan: bool = False
    """Whether the task's own input holds NaN."""


@dataclass(frozen=True)
class Line:
    """A Python expression over the tensors ``sources``, which stand in it as ``{0}``, ``{1}``..."""

    template: str
    sources: tuple[Value, ...]


@dataclass(eq=False)
class Call:
    """A line of ``forward``: ``targets`` = the expression, where what nothing needs is ``_``."""

    line: Line
    operator: str
    targets: str = ""


@dataclass(eq=False, kw_only=True)
class Kept(Buffer):
    """What an operator that stays in torch gives; ``text`` is its variable in Python and in C++."""

    call: Call


@dataclass(eq=False, kw_only=True)
class Constant(Value):
    """The same number everywhere. ``text``: its literal."""

    text: str


@dataclass(eq=False, kw_only=True)
class Point(Value):
    """An expression of the elements at the same place; ``template`` has ``{0}``, ``{1}``... for the arguments."""

    template: str
    args: tuple[Value, ...]
    inline: bool = False
    """Written inside the statement that needs it: the term of a sum."""

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.args


@dataclass(eq=False, kw_only=True)
class Moved(Value):
    """The element of ``args[0]`` at another place: views, broadcasts, flips, rolls."""

    args: tuple[Value, ...]
    place: Callable[[Emitter, Index], Index]
    still: bool = False
    """A view or broadcast: the elements stay in their order."""

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.args


@dataclass(frozen=True)
class Tile:
    """A product of two matrices: where the factors of term ``k`` of element (``row``, ``col``) lie.

    ``transposed``: the second matrix lies with its rows as the result's columns, as the weight of a linear layer.
    """

    depth: Dim
    x: Callable[[str, str], list[str]]
    y: Callable[[str, str], list[str]]
    transposed: bool


@dataclass(eq=False, kw_only=True)
class Written(Value):
    """An element that needs statements of its own: padding, gathers, windows, products of matrices.

    ``heavy``: it loops, so it is computed once for each element and never inside another loop.
    """

    args: tuple[Value, ...]
    write: Callable[[Emitter, Index], str]
    heavy: bool = False
    repeats: bool = False
    """It reads each element of its arguments many times."""
    tile: Tile | None = None
    """Set for a product of two matrices."""

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.args


@dataclass(eq=False, kw_only=True)
class Size(Written):
    """A size as a number of the arithmetic: ``cols`` in ``total / cols``."""


@dataclass(eq=False, kw_only=True)
class Reduced(Value):
    """``op`` over ``dims`` of ``arg``, which the shape no longer has."""

    op: ReduceOp
    arg: Value
    dims: tuple[int, ...]
    nans: bool = False
    """Whether a NaN has to win."""

    @property
    def arguments(self) -> tuple[Value, ...]:
        return (self.arg,)

    @property
    def domain(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return values(self.arg.shape), self.dims


@dataclass(eq=False, kw_only=True)
class Scanned(Value):
    """A running result along ``dim``: ``step`` updates the variable ``acc`` from the element ``{0}``."""

    arg: Value
    dim: int
    start: str
    step: str
    result: str = "acc"

    @property
    def arguments(self) -> tuple[Value, ...]:
        return (self.arg,)


@dataclass(eq=False, kw_only=True)
class Ranked(Value):
    """Elements along ``dim`` at their place in the order; ``keep`` of them from rank ``first``. ``index``: whether
    positions are wanted in place of values."""

    arg: Value
    dim: int
    descending: bool
    first: int
    index: bool

    @property
    def arguments(self) -> tuple[Value, ...]:
        return (self.arg,)


CTYPES: dict[torch.dtype, str] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int32: "int",
    torch.bool: "bool",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
}


def ctype(dtype: torch.dtype) -> str:
    if dtype not in CTYPES:
        raise Unwritten(f"dtype {str(dtype).removeprefix('torch.')}")
    return CTYPES[dtype]


def reachable(roots: Sequence[Value], inside: Callable[[Value], bool] = lambda _: True) -> list[Value]:
    """Everything that ``roots`` are made of, arguments first; nothing beyond values that are not ``inside``."""
    order: list[Value] = []
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        stack.append((value, True))
        if inside(value):
            stack += [(argument, False) for argument in reversed(value.arguments)]
    return order
