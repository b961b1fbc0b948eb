"""Diagonals and triangles."""

from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    cast,
    handles,
    moved,
    number,
    require,
)
from dice_training.cuke.traced.places import guarded, hold, sized
from dice_training.cuke.traced.values import (
    Value,
    Written,
    plus,
)


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
