"""Tensors one behind the other, and grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    cast,
    handles,
    moved,
    number,
    reshape,
)
from dice_training.cuke.traced.places import hold
from dice_training.cuke.traced.values import (
    Dim,
    Value,
    Written,
    ctype,
    plus,
    times,
    values,
)


def concatenate(parts: Sequence[Value], dim: int, dtype: torch.dtype) -> Value:
    """``parts`` one behind the other along ``dim``."""
    parts = [cast(p, dtype) for p in parts if values(p.shape) != (0,)]
    if len(parts) == 1:
        return parts[0]
    total = parts[0].shape[dim]
    for p in parts[1:]:
        total = plus(total, p.shape[dim])
    if len({p.shape[dim].text for p in parts}) == 1 and not parts[0].shape[dim].literal:
        total = Dim(total.value, f"{parts[0].shape[dim].text} * {len(parts)}")
    shape = (*parts[0].shape[:dim], total, *parts[0].shape[dim + 1 :])

    def write(e: Emitter, i: Index) -> str:
        name = e.declare(ctype(dtype), "v", number(0, dtype).text)
        e.block.lines[-1] = e.block.lines[-1].split(" = ")[0] + ";"
        e.block.own.discard(name)
        position, starts = i.coord(dim), []
        for number_, part in enumerate(parts):
            last = number_ == len(parts) - 1
            starts.append(e.size(part.shape[dim]))
            limit = " + ".join(starts) if not all(s.isdigit() for s in starts) else str(sum(map(int, starts)))
            head = (
                f"if ({position} < {limit})"
                if number_ == 0
                else "else"
                if last
                else f"else if ({position} < {limit})"
            )
            coords = i.coords()
            before = (
                " + ".join(starts[:-1])
                if not all(s.isdigit() for s in starts[:-1])
                else str(sum(map(int, starts[:-1])))
            )
            with e.inside(head, loop=False):
                if number_:
                    coords[dim] = (
                        hold(e, f"{position} - {before}" if " " not in before else f"{position} - ({before})")
                        if part.shape[dim].value > 1
                        else "0"
                    )
                elif part.shape[dim].value == 1:
                    coords[dim] = "0"
                e.line(f"{name} = {e.value(part, at(part.shape, coords))};")
        return name

    return Written(shape=shape, dtype=dtype, args=tuple(parts), write=write, name="cat")


@handles("cat", "concat", "concatenate")
def cat(a: Arguments) -> Value:
    return concatenate(a.tensors, axis(getattr(a, "dim", 0), len(a.out_shape)), a.out_dtype)


def _stack_as(rank: int, dim: int) -> Any:
    def handler(a: Arguments) -> Value:
        parts = a.tensors
        if rank == 2 and len(parts[0].shape) == 1:
            parts = [reshape(p, [1, p.shape[0].value]) for p in parts]
        return concatenate(parts, dim if len(parts[0].shape) > 1 else 0, a.out_dtype)

    return handler


handles("hstack")(_stack_as(1, 1))
handles("vstack", "row_stack")(_stack_as(2, 0))


@handles("stack")
def stack(a: Arguments) -> Value:
    dim = axis(a.dim, len(a.out_shape))
    parts = []
    for tensor in a.tensors:
        sizes = list(values(tensor.shape))
        parts.append(reshape(tensor, [*sizes[:dim], 1, *sizes[dim:]]))
    return concatenate(parts, dim, a.out_dtype)


@handles("meshgrid")
def meshgrid(a: Arguments) -> list[Value]:
    tensors = [reshape(t, [times(t.shape).value]) for t in a.tensors]
    sizes = tuple(t.shape[0] for t in tensors)
    flip_ = getattr(a, "indexing", "ij") == "xy" and len(tensors) > 1
    shape = (sizes[1], sizes[0], *sizes[2:]) if flip_ else sizes
    places = [1, 0, *range(2, len(sizes))] if flip_ else range(len(sizes))
    return [
        moved(t, shape, lambda e, i, p=p: [i.coord(p)], "meshgrid")
        for t, p in zip(tensors, places, strict=True)
    ]
