"""Views: other shapes, orders and parts of the same elements."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    common_shape,
    expand,
    handles,
    moved,
    require,
    reshape,
)
from dice_training.cuke.traced.places import hold
from dice_training.cuke.traced.values import (
    Dim,
    Value,
    constant,
    plus,
    values,
)


def _plain(e: Emitter, coords: list[str], dim: int) -> list[str]:
    """``coords`` with the computed one in a variable, so that it can stand in any expression."""
    text = coords[dim]
    if not text.isidentifier() and not text.isdigit():
        coords[dim] = hold(e, text)
    return coords


@handles("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "ravel", "_reshape_alias", "atleast_1d", "atleast_2d", "atleast_3d", "view_copy")  # fmt: skip
def view(a: Arguments) -> Value:
    return reshape(a.self_, a.out_shape)


@handles("expand", "expand_as", "broadcast_to")
def expanded(a: Arguments) -> Value:
    lead = len(a.out_shape) - len(a.self_.shape)
    like = getattr(a, "other", None)
    known = like.shape if isinstance(like, Value) else (constant(1),) * lead + a.self_.shape
    shape = tuple(
        dim if dim.value == size else constant(size) for dim, size in zip(known, a.out_shape, strict=True)
    )
    return expand(a.self_, shape)


@handles("broadcast_tensors")
def broadcast_tensors(a: Arguments) -> list[Value]:
    shape = common_shape([t.shape for t in a.tensors])
    return [expand(t, shape) for t in a.tensors]


def permute(value: Value, order: Sequence[int]) -> Value:
    """Dimension k of the result is ``order[k]`` of ``value``."""
    if list(order) == sorted(order):
        return value
    shape = tuple(value.shape[d] for d in order)
    return moved(
        value, shape, lambda e, i: [i.coord(list(order).index(d)) for d in range(len(order))], "permute"
    )


@handles("permute")
def permuted(a: Arguments) -> Value:
    return permute(a.self_, [axis(d, len(a.dims)) for d in a.dims])


@handles("transpose", "swapaxes", "swapdims")
def transposed(a: Arguments) -> Value:
    rank = len(a.self_.shape)
    first, second = getattr(a, "dim0", getattr(a, "axis0", 0)), getattr(a, "dim1", getattr(a, "axis1", 1))
    order = list(range(rank))
    if rank:
        i, j = axis(first, rank), axis(second, rank)
        order[i], order[j] = order[j], order[i]
    return permute(a.self_, order)


@handles("t", "numpy_T", "mT", "adjoint")
def t(a: Arguments) -> Value:
    rank = len(a.self_.shape)
    return a.self_ if rank < 2 else permute(a.self_, [*range(rank - 2), rank - 1, rank - 2])


@handles("movedim", "moveaxis")
def movedim(a: Arguments) -> Value:
    rank = len(a.self_.shape)
    listed = [v if isinstance(v, list | tuple) else [v] for v in (a.source, a.destination)]
    source, target = [[axis(d, rank) for d in v] for v in listed]
    rest = iter(d for d in range(rank) if d not in source)
    return permute(a.self_, [source[target.index(k)] if k in target else next(rest) for k in range(rank)])


def narrow(value: Value, dim: int, start: int, length: int, step: int = 1) -> Value:
    """``value[start : start + length * step : step]`` along ``dim``."""
    if start == 0 and step == 1 and length == value.shape[dim].value:
        return value
    size = value.shape[dim]
    if length == size.value:
        new = size
    elif step == 1 and 2 * length == size.value and not size.literal:
        new = Dim(length, f"{size.text} / 2")
    elif step == 1 and start + length == size.value and not size.literal:
        new = plus(size, -start)
    else:
        new = constant(length)
    shape = (*value.shape[:dim], new, *value.shape[dim + 1 :])

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        offset = (
            e.size(new) if start == length and not new.literal and 2 * length == size.value else str(start)
        )
        mine = out[dim] if step == 1 or out[dim] == "0" else f"{out[dim]} * {step}"
        out[dim] = mine if start == 0 else offset if mine == "0" else f"{mine} + {offset}"
        return _plain(e, out, dim)

    return moved(value, shape, coords, "slice")


@handles("slice", "narrow")
def sliced(a: Arguments) -> Value:
    dim = axis(a.dim, len(a.self_.shape))
    size = a.self_.shape[dim].value
    if hasattr(a, "length"):
        require(isinstance(a.start, int), "a slice that is computed")
        return narrow(a.self_, dim, axis(a.start, size), a.length)
    start = a.start or 0
    start = max(0, start + size) if start < 0 else min(start, size)
    return narrow(a.self_, dim, start, a.out_shape[dim], a.step)


@handles("select")
def select(a: Arguments) -> Value:
    require(isinstance(a.index, int), "an index that is computed")
    dim = axis(a.dim, len(a.self_.shape))
    at_ = axis(a.index, a.self_.shape[dim].value)
    shape = (*a.self_.shape[:dim], *a.self_.shape[dim + 1 :])

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        return [*out[:dim], str(at_), *out[dim:]]

    return moved(a.self_, shape, coords, "select")


@handles("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "hsplit", "vsplit", "split_copy")  # fmt: skip
def split(a: Arguments) -> list[Value]:
    dim = axis(getattr(a, "dim", 0), len(a.self_.shape))
    size = a.self_.shape[dim].value
    if hasattr(a, "chunks"):
        step = -(-size // a.chunks)
        sizes = [min(step, size - k) for k in range(0, size, step)]
    elif hasattr(a, "sections") and isinstance(a.sections, int):
        sizes = [size // a.sections + (k < size % a.sections) for k in range(a.sections)]
    else:
        wanted: Any = getattr(a, "split_size", getattr(a, "split_sizes", None))
        require(wanted is not None, "a split by indices")
        sizes = (
            wanted
            if isinstance(wanted, list | tuple)
            else [min(wanted, size - k) for k in range(0, size, wanted)]
        )
    out, start = [], 0
    for length in sizes:
        out.append(narrow(a.self_, dim, start, length))
        start += length
    return out


@handles("unbind")
def unbind(a: Arguments) -> list[Value]:
    dim = axis(a.dim, len(a.self_.shape))
    return [_selected(a.self_, dim, k) for k in range(a.self_.shape[dim].value)]


def _selected(value: Value, dim: int, k: int) -> Value:
    sizes = [s for d, s in enumerate(values(value.shape)) if d != dim]
    return reshape(narrow(value, dim, k, 1), sizes)
