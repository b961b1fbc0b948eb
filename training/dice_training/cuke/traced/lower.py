"""The registry of handlers for ATen operators, and what all handlers share.

A handler takes the traced operator's arguments by the names of its schema (tensors as values) and returns a value, or
a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.literals import literal
from dice_training.cuke.traced.values import (
    Constant,
    Dim,
    Moved,
    Point,
    Shape,
    Size,
    Unwritten,
    Value,
    constant,
    times,
    values,
)

Arguments = Any
"""The operator's arguments by name; ``dtype`` and ``shape`` of the result as ``out_dtype`` and ``out_shape``."""
Handler = Callable[[Arguments], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register for ATen operators by name (without overload)."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def base_name(target: Any) -> str:
    """``relu`` for ``aten.relu_.default``."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target))
    name = schema.name.split("::")[-1]
    return name[:-1] if name.endswith("_") and not name.startswith("_") else name


# -- building values


def number(value: float | bool, dtype: torch.dtype, shape: Shape = ()) -> Constant:
    return Constant(shape=shape, dtype=dtype, text=literal(value, dtype))


def cast(value: Value, dtype: torch.dtype) -> Value:
    if value.dtype == dtype:
        return value
    if isinstance(value, Constant):
        text = {"true": "1", "false": "0"}.get(value.text, value.text).rstrip("f")
        return number(float(text.replace("INFINITY", "inf").replace("NAN", "nan")), dtype, value.shape)
    if dtype == torch.bool:
        zero = literal(0, value.dtype)
        return Point(shape=value.shape, dtype=dtype, template=f"{{0}} != {zero}", args=(value,), name="to")
    names = {torch.float32: "float", torch.float64: "double", torch.int64: "int64_t", torch.int32: "int"}
    if dtype not in names:
        raise Unwritten(f"dtype {str(dtype).removeprefix('torch.')}")
    return Point(shape=value.shape, dtype=dtype, template=f"({names[dtype]}){{0}}", args=(value,), name="to")


def common_shape(shapes: Sequence[Shape]) -> Shape:
    rank = max((len(shape) for shape in shapes), default=0)
    out: list[Dim] = []
    for back in range(rank, 0, -1):
        dims = [shape[-back] for shape in shapes if len(shape) >= back]
        out.append(next((dim for dim in dims if dim.value != 1), dims[0]))
    return tuple(out)


def expand(value: Value, shape: Shape) -> Value:
    """``value`` broadcast to ``shape``."""
    if values(value.shape) == values(shape):
        return value
    if isinstance(value, Constant):
        return Constant(shape=shape, dtype=value.dtype, text=value.text)
    if isinstance(value, Size):
        return Size(shape=shape, dtype=value.dtype, args=(), write=value.write)
    lead = len(shape) - len(value.shape)
    small = value.shape

    def place(_: Emitter, index: Index) -> Index:
        return Index(small, None, lambda dim: index.coord(dim + lead))

    return Moved(shape=shape, dtype=value.dtype, args=(value,), place=place, name="expand", still=True)


def point(
    template: str,
    *args: Value | float,
    dtype: torch.dtype,
    like: torch.dtype | None = None,
    name: str = "",
    inline: bool = False,
) -> Value:
    """An elementwise value of type ``dtype``; arguments are broadcast and taken as ``like`` (``dtype`` by default)."""
    like = like or dtype
    made = [cast(a, like) if isinstance(a, Value) else number(a, like) for a in args]
    shape = common_shape([a.shape for a in made])
    spread = tuple(expand(a, shape) for a in made)
    return Point(shape=shape, dtype=dtype, template=template, args=spread, name=name, inline=inline)


def reshape(value: Value, sizes: Sequence[int]) -> Value:
    """A view in another shape."""
    shape = _new_dims(value.shape, [int(size) for size in sizes])
    if values(shape) == values(value.shape):
        return value
    if isinstance(value, Constant):
        return Constant(shape=shape, dtype=value.dtype, text=value.text)
    old = value.shape
    same = [dim for dim in values(old) if dim != 1] == [dim for dim in values(shape) if dim != 1]

    def place(e: Emitter, index: Index) -> Index:
        if index.flat is not None:
            return e.split(index.flat, old)
        if same:
            real = [dim for dim in range(len(shape)) if shape[dim].value != 1]
            mine = [dim for dim in range(len(old)) if old[dim].value != 1]
            return Index(old, None, lambda dim: index.coord(real[mine.index(dim)]))
        text = e.linear(index, shape)
        key = ("flat", text)
        flat = e.block.find(key) or e.declare("int", "j", text)
        e.block.known[key] = flat
        return e.split(flat, old)

    return Moved(shape=shape, dtype=value.dtype, args=(value,), place=place, name="view", still=True)


def _new_dims(old: Shape, sizes: Sequence[int]) -> Shape:
    """``sizes`` with the expressions that they have as products of ``old``."""
    out: list[Dim] = []
    i, j = 0, 0
    while i < len(old) or j < len(sizes):
        have, want = [old[i]] if i < len(old) else [], [sizes[j]] if j < len(sizes) else []
        i, j = i + len(have), j + len(want)
        a, b = times(have).value, _product(want)
        while a != b:
            if a < b and i < len(old):
                have.append(old[i])
                i += 1
            elif j < len(sizes):
                want.append(sizes[j])
                j += 1
            else:
                raise Unwritten("a view")
            a, b = times(have).value, _product(want)
        out += _group(have, want)
    return tuple(out)


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _group(have: list[Dim], want: list[int]) -> list[Dim]:
    if not want:
        return []
    if [d.value for d in have] == want:
        return have
    if len(want) == 1:
        return [times(have)]
    whole = times(have)
    if whole.literal:
        return [constant(size) for size in want]
    known = [next((d for d in have if d.value == size and size != 1), constant(size)) for size in want]
    open_ = max(range(len(want)), key=lambda k: (known[k].literal, want[k]))
    rest = times([dim for k, dim in enumerate(known) if k != open_])
    left = f"({whole.text})" if " " in whole.text else whole.text
    right = f"({rest.text})" if " " in rest.text else rest.text
    if rest.value == 1:
        known[open_] = whole
    else:
        known[open_] = Dim(want[open_], f"{left} / {right}")
    return known


def moved(
    value: Value, shape: Shape, coords: Callable[[Emitter, Index], Sequence[str]], name: str = "move"
) -> Value:
    """The element of ``value`` at computed coordinates."""
    if isinstance(value, Constant):
        return Constant(shape=shape, dtype=value.dtype, text=value.text)
    return Moved(
        shape=shape,
        dtype=value.dtype,
        args=(value,),
        place=lambda e, index: at(value.shape, list(coords(e, index))),
        name=name,
    )


def axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def axes(dims: Any, rank: int) -> tuple[int, ...]:
    """Sorted positions; all of them where ``dims`` is None or empty."""
    if dims is None or dims == []:
        return tuple(range(rank))
    listed = dims if isinstance(dims, list | tuple) else [dims]
    return tuple(sorted(axis(dim, rank) for dim in listed)) if rank else ()


def require(condition: object, reason: str) -> None:
    if not condition:
        raise Unwritten(reason)
