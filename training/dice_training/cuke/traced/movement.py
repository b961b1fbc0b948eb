"""Flips, rolls and repeats: operators that move elements. None of them gets a kernel of its own."""

from __future__ import annotations

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
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
    times,
    values,
)
from dice_training.cuke.traced.views import permute


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
