"""Elements by computed places."""

from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    handles,
    require,
    reshape,
)
from dice_training.cuke.traced.places import hold
from dice_training.cuke.traced.values import (
    Dim,
    Shape,
    Value,
    Written,
    constant,
    times,
    values,
)


def _wrapped(e: Emitter, index: str, size: Dim) -> str:
    return hold(e, f"{index} < 0 ? {index} + {e.size(size)} : {index}", "s")


def _position(e: Emitter, value: Value, index: Index) -> str:
    """An element of an integer tensor as an ``int`` variable."""
    key = ("position", id(value), index.key)
    found = e.block.find(key)
    if found is None:
        found = e.declare("int", "k", e.value(value, index))
        e.block.own.discard(found)
        e.block.known[key] = found
    return found


@handles("embedding")
def embedding(a: Arguments) -> Value:
    shape = (*a.indices.shape, a.weight.shape[1])

    def place(e: Emitter, i: Index) -> list[str]:
        inner = Index(a.indices.shape, None, i.coord)
        return [_position(e, a.indices, inner), i.coord(len(shape) - 1)]

    return _gathered(a.weight, shape, a.indices, place, "embedding")


def _gathered(value: Value, shape: Shape, by: Value, place: Any, name: str) -> Value:
    def write(e: Emitter, i: Index) -> str:
        return e.value(value, at(value.shape, place(e, i)))

    return Written(shape=shape, dtype=value.dtype, args=(value, by), write=write, name=name)


@handles("gather")
def gather(a: Arguments) -> Value:
    dim = axis(a.dim, len(a.self_.shape))

    def place(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        out[dim] = _position(e, a.index, i)
        return out

    return _gathered(a.self_, a.index.shape, a.index, place, "gather")


@handles("take_along_dim")
def take_along_dim(a: Arguments) -> Value:
    require(a.dim is not None and values(a.indices.shape) == a.out_shape, "take_along_dim")
    a.index = a.indices
    return gather(a)


@handles("index_select")
def index_select(a: Arguments) -> Value:
    dim = axis(a.dim, len(a.self_.shape))
    count = reshape(a.index, [times(a.index.shape).value])
    shape = (*a.self_.shape[:dim], count.shape[0], *a.self_.shape[dim + 1 :])

    def place(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        out[dim] = _position(e, count, at(count.shape, [i.coord(dim)]))
        return out

    return _gathered(a.self_, shape, count, place, "index_select")


@handles("take")
def take(a: Arguments) -> Value:
    flat = reshape(a.self_, [times(a.self_.shape).value])

    def place(e: Emitter, i: Index) -> list[str]:
        return [_wrapped(e, _position(e, a.index, i), flat.shape[0])]

    return _gathered(flat, a.index.shape, a.index, place, "take")


@handles("index")
def index(a: Arguments) -> Value:
    """One integer tensor among full slices."""
    given = [(d, t) for d, t in enumerate(a.indices) if t is not None]
    require(
        len(given) == 1 and given[0][1].dtype in (torch.int64, torch.int32),
        "index by masks or several tensors",
    )
    dim, by = given[0]
    shape = (*a.self_.shape[:dim], *by.shape, *a.self_.shape[dim + 1 :])

    def place(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        inner = at(by.shape, out[dim : dim + len(by.shape)])
        k = _wrapped(e, _position(e, by, inner), a.self_.shape[dim])
        return [*out[:dim], k, *out[dim + len(by.shape) :]]

    return _gathered(a.self_, shape, by, place, "index")


@handles("one_hot")
def one_hot(a: Arguments) -> Value:
    shape = (*a.self_.shape, constant(a.out_shape[-1]))

    def write(e: Emitter, i: Index) -> str:
        inner = Index(a.self_.shape, None, i.coord)
        return f"{e.value(a.self_, inner)} == {i.coord(len(shape) - 1)} ? 1 : 0"

    return Written(shape=shape, dtype=a.out_dtype, args=(a.self_,), write=write)
