"""Views, flips, repeats and triangles: operators that move elements. None of them gets a kernel of its own."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    cast,
    expand,
    handles,
    moved,
    number,
    require,
    reshape,
)
from dice_training.cuke.traced.values import (
    Dim,
    Value,
    Written,
    constant,
    ctype,
    plus,
    times,
    values,
)


def sized(value: int, *known: Dim) -> Dim:
    """``value`` as a size, by the name of a known size that equals it."""
    return next((dim for dim in known if dim.value == value), constant(value))


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
    from dice_training.cuke.traced.lower import common_shape

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


def _plain(e: Emitter, coords: list[str], dim: int) -> list[str]:
    """``coords`` with the computed one in a variable, so that it can stand in any expression."""
    text = coords[dim]
    if not text.isidentifier() and not text.isdigit():
        coords[dim] = hold(e, text)
    return coords


def hold(e: Emitter, text: str, base: str = "s") -> str:
    """An ``int`` variable with ``text``, the same one for the same text."""
    if text.isidentifier() or text.isdigit():
        return text
    key = ("int", text)
    found = e.block.find(key)
    if found is None:
        found = e.declare("int", base, text)
        e.block.own.discard(found)
        e.block.known[key] = found
    return found


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


@handles("flip", "fliplr", "flipud")
def flip(a: Arguments) -> Value:
    default = [1] if a.overload == "" and not hasattr(a, "dims") else [0]
    dims = [axis(d, len(a.self_.shape)) for d in getattr(a, "dims", default)]

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        for d in dims:
            if a.self_.shape[d].value != 1:
                out[d] = hold(e, f"{e.size(a.self_.shape[d])} - 1 - {out[d]}")
        return out

    return moved(a.self_, a.self_.shape, coords, "flip")


@handles("roll")
def roll(a: Arguments) -> Value:
    value = a.self_
    if not a.dims:
        flat = reshape(value, [times(value.shape).value])
        return reshape(_rolled(flat, 0, a.shifts[0]), values(value.shape))
    for shift, dim in zip(a.shifts, a.dims, strict=True):
        value = _rolled(value, axis(dim, len(value.shape)), shift)
    return value


def _rolled(value: Value, dim: int, shift: int) -> Value:
    size = value.shape[dim]
    shift %= max(1, size.value)
    if shift == 0:
        return value

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        name = e.size(size)
        out[dim] = hold(e, f"({out[dim]} + {name} - {shift}) % {name}")
        return out

    return moved(value, value.shape, coords, "roll")


@handles("rot90")
def rot90(a: Arguments) -> Value:
    rank = len(a.self_.shape)
    first, second = (axis(d, rank) for d in a.dims)
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    turned = a.self_ if a.k % 4 in (0, 2) else permute(a.self_, order)

    def flipped(value: Value, dim: int) -> Value:
        size = value.shape[dim]

        def coords(e: Emitter, i: Index) -> list[str]:
            out = i.coords()
            out[dim] = hold(e, f"{e.size(size)} - 1 - {out[dim]}")
            return out

        return moved(value, value.shape, coords, "flip") if size.value > 1 else value

    if a.k % 4 == 0:
        return turned
    if a.k % 4 == 2:
        return flipped(flipped(turned, first), second)
    return flipped(turned, first if a.k % 4 == 1 else second)


@handles("repeat", "tile")
def repeat(a: Arguments) -> Value:
    times_ = list(getattr(a, "repeats", None) or a.dims)
    rank = max(len(times_), len(a.self_.shape))
    times_ = [1] * (rank - len(times_)) + times_
    value = reshape(a.self_, [1] * (rank - len(a.self_.shape)) + list(values(a.self_.shape)))
    shape = tuple(
        dim if n == 1 else constant(dim.value * n) if dim.literal else Dim(dim.value * n, f"{dim.text} * {n}")
        for dim, n in zip(value.shape, times_, strict=True)
    )

    def coords(e: Emitter, i: Index) -> list[str]:
        return [
            i.coord(d)
            if n == 1
            else "0"
            if value.shape[d].value == 1
            else hold(e, f"{i.coord(d)} % {e.size(value.shape[d])}")
            for d, n in enumerate(times_)
        ]

    return moved(value, shape, coords, "repeat")


@handles("repeat_interleave")
def repeat_interleave(a: Arguments) -> Value:
    require(isinstance(getattr(a, "repeats", None), int), "repeat_interleave by a tensor")
    value = a.self_ if a.dim is not None else reshape(a.self_, [times(a.self_.shape).value])
    dim = axis(a.dim or 0, len(value.shape))
    size = value.shape[dim]
    long = (
        constant(size.value * a.repeats)
        if size.literal
        else Dim(size.value * a.repeats, f"{size.text} * {a.repeats}")
    )

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        out[dim] = hold(e, f"{out[dim]} / {a.repeats}") if size.value > 1 else "0"
        return out

    return moved(value, (*value.shape[:dim], long, *value.shape[dim + 1 :]), coords, "repeat")


@handles("diagonal", "diag")
def diagonal(a: Arguments) -> Value:
    offset = getattr(a, "offset", getattr(a, "diagonal", 0))
    rank = len(a.self_.shape)
    if rank == 1:
        return _diag_embed(a.self_, offset, a.out_dtype)
    first, second = axis(getattr(a, "dim1", 0), rank), axis(getattr(a, "dim2", 1), rank)
    rest = [d for d in range(rank) if d not in (first, second)]
    shape = (
        *(a.self_.shape[d] for d in rest),
        sized(a.out_shape[-1], a.self_.shape[first], a.self_.shape[second]),
    )

    def coords(e: Emitter, i: Index) -> list[str]:
        out = [""] * rank
        for k, d in enumerate(rest):
            out[d] = i.coord(k)
        k = i.coord(len(rest))
        out[first] = k if offset >= 0 else hold(e, f"{k} + {-offset}")
        out[second] = k if offset <= 0 else hold(e, f"{k} + {offset}")
        return out

    return moved(a.self_, shape, coords, "diagonal")


@handles("diag_embed", "diagflat")
def diag_embed(a: Arguments) -> Value:
    require((getattr(a, "dim1", -2), getattr(a, "dim2", -1)) == (-2, -1), "diag_embed over other dimensions")
    return _diag_embed(a.self_, a.offset, a.out_dtype)


def _diag_embed(value: Value, offset: int, dtype: torch.dtype) -> Value:
    long = plus(value.shape[-1], abs(offset))
    shape = (*value.shape[:-1], long, long)

    def write(e: Emitter, i: Index) -> str:
        r, c = i.coord(len(shape) - 2), i.coord(len(shape) - 1)
        k = c if offset <= 0 else r
        shifted = f"{r} + {offset}" if offset > 0 else r if offset == 0 else f"{r} - {-offset}"
        return guarded(e, value, f"{shifted} == {c}", [*i.coords()[:-2], k], number(0, dtype).text)

    return Written(shape=shape, dtype=dtype, args=(value,), write=write, name="diag")


def guarded(e: Emitter, value: Value, condition: str, coords: Sequence[str], fill: str) -> str:
    """``value`` at ``coords`` where ``condition`` holds, ``fill`` elsewhere: read only where it may be read."""
    if not condition:
        return e.value(value, at(value.shape, list(coords)))
    name = e.declare(ctype(value.dtype), "v", fill)
    e.block.own.discard(name)
    before = len(e.block.lines)
    with e.inside(f"if ({condition})", loop=False):
        e.line(f"{name} = {e.value(value, at(value.shape, list(coords)))};")
    if len(e.block.lines) == before + 3:
        text = e.block.lines[before + 1].strip()
        e.block.lines[before:] = [e.block.lines[before].removesuffix(" {") + f" {text}"]
    return name


def _triangle(sign: str) -> Any:
    def handler(a: Arguments) -> Value:
        value = cast(a.self_, a.out_dtype)
        zero = number(0, a.out_dtype).text

        def write(e: Emitter, i: Index) -> str:
            r, c = i.coord(len(i.shape) - 2), i.coord(len(i.shape) - 1)
            k = getattr(a, "diagonal", 0)
            shifted = r if k == 0 else f"{r} + {k}" if k > 0 else f"{r} - {-k}"
            return f"{c} {sign} {shifted} ? {e.value(value, i)} : {zero}"

        return Written(shape=value.shape, dtype=a.out_dtype, args=(value,), write=write)

    return handler


handles("tril")(_triangle("<="))
handles("triu")(_triangle(">="))
