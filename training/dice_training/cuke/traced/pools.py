"""Pooling: one thread an output element, a loop over its window."""

# ruff: noqa: E501
from __future__ import annotations

from math import prod
from typing import Any

import torch

from dice_training.cuke.traced.convolutions import listed, window_place, window_size
from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import Arguments, handles, point, require
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.orders import Unavailable
from dice_training.cuke.traced.places import hold
from dice_training.cuke.traced.reductions import mean, reduce
from dice_training.cuke.traced.values import Shape, Value, Written, constant, ctype, values


def pool(
    value: Value,
    shape: Shape,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    how: str,
    whole: bool = True,
    divisor: int | None = None,
    ceil: bool = False,
) -> Value:
    """``how``: ``max``, ``avg`` or ``argmax`` over sliding windows of the last dimensions. ``whole``: padding counts."""
    rank = len(kernel)
    lead = len(shape) - rank
    letters, places = ["kd", "kh", "kw"][3 - rank :], ["d", "h", "w"][3 - rank :]
    kind = ctype(value.dtype)
    clipped = ceil or any(padding)
    counts = how == "avg" and clipped and divisor is None and (not whole or ceil)
    require(not (counts and whole), "average pooling with ceil_mode")

    def write(e: Emitter, i: Index) -> str:
        coords = i.coords()
        acc = e.declare(kind, "acc", "0.0f" if how == "avg" else "-INFINITY")
        e.block.own.discard(acc)
        where = e.declare("int", "where", "0") if how == "argmax" else ""
        count = e.declare("int", "count", "0") if counts else ""
        positions: list[str] = []

        def windows(d: int) -> None:
            if d == rank:
                v = e.variable(value, at(value.shape, [*coords[:lead], *positions]))
                if how == "avg":
                    e.line(f"{acc} += {v};")
                    if counts:
                        e.line(f"++{count};")
                elif how == "max" and may_be_nan(value):
                    e.line(f"if ({v} > {acc} || isnan({v})) {acc} = {v};")
                elif how == "max":
                    e.line(f"{acc} = fmaxf({acc}, {v});")
                else:
                    flat = positions[0]
                    for k in range(1, rank):
                        flat = (
                            f"({flat}) * {e.size(value.shape[lead + k])} + {positions[k]}"
                            if " " in flat
                            else f"{flat} * {e.size(value.shape[lead + k])} + {positions[k]}"
                        )
                    with e.inside(f"if ({v} > {acc})", loop=False):
                        e.line(f"{acc} = {v};")
                        e.line(f"{where} = {flat};")
                return
            letter = letters[d]
            size = value.shape[lead + d]

            def step() -> None:
                text = window_place(coords[lead + d], letter, kernel[d], stride[d], padding[d], dilation[d])
                place = hold(e, text, places[d])
                if padding[d]:
                    e.line(f"if ({place} < 0 || {place} >= {e.size(size)}) continue;")
                elif ceil:
                    e.line(f"if ({place} >= {e.size(size)}) continue;")
                positions.append(place if size.value > 1 else "0")
                windows(d + 1)
                positions.pop()

            if kernel[d] == 1 and not padding[d] and not ceil:
                step()
                return
            with e.inside(f"for (int {letter} = 0; {letter} < {kernel[d]}; ++{letter})"):
                step()

        windows(0)
        if how == "argmax":
            return where
        return acc

    dtype = torch.int64 if how == "argmax" else value.dtype
    out: Value = Written(shape=shape, dtype=dtype, args=(value,), write=write, heavy=True, name=f"{how}_pool")
    if how == "avg":
        if counts:
            return _counted(value, out, shape, kernel, stride, padding, dilation)
        number_ = divisor or prod(kernel)
        out = point("{0} / {1}", out, float(number_), dtype=value.dtype)
    return out


def _counted(
    value: Value,
    sums: Value,
    shape: Shape,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Value:
    """Sums divided by how many elements of the window are inside."""
    lead = len(shape) - len(kernel)

    def write(e: Emitter, i: Index) -> str:
        parts = []
        for d, width in enumerate(kernel):
            first = f"{i.coord(lead + d)} * {stride[d]} - {padding[d]}"
            low = hold(e, first, "low")
            size = e.size(value.shape[lead + d])
            parts.append(f"(min({low} + {width}, {size}) - max({low}, 0))")
        return " * ".join(parts)

    count = Written(shape=shape, dtype=value.dtype, args=(), write=write, name="count")
    return point("{0} / {1}", sums, count, dtype=value.dtype)


def _pooled(a: Arguments, rank: int, how: str) -> Any:
    value = a.self_
    kernel = listed(a.kernel_size, rank)
    stride = listed(a.stride, rank) if a.stride else kernel
    padding, dilation = listed(a.padding, rank), listed(getattr(a, "dilation", 1), rank)
    lead = len(value.shape) - rank
    require(how != "avg" or not (a.ceil_mode and any(padding)), "average pooling with ceil_mode and padding")
    space = tuple(
        window_size(
            value.shape[lead + d], kernel[d], stride[d], padding[d], dilation[d], a.out_shape[lead + d]
        )
        for d in range(rank)
    )
    shape = (*value.shape[:lead], *space)
    ceil = a.ceil_mode and any(
        (a.out_shape[lead + d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 > value.shape[lead + d].value + 2 * padding[d]
        for d in range(rank)
    )  # fmt: skip
    whole = getattr(a, "count_include_pad", True) and not ceil
    return pool(
        value,
        shape,
        kernel,
        stride,
        padding,
        dilation,
        how,
        whole,
        getattr(a, "divisor_override", None),
        ceil,
    )


def _pools(rank: int) -> None:
    handles(f"max_pool{rank}d")(lambda a: _pooled(a, rank, "max"))
    handles(f"avg_pool{rank}d")(lambda a: _pooled(a, rank, "avg"))
    both = lambda a: [_pooled(a, rank, "max"), _pooled(a, rank, "argmax")]  # noqa: E731
    handles(f"max_pool{rank}d_with_indices")(both)
    handles(f"adaptive_avg_pool{rank}d", f"_adaptive_avg_pool{rank}d")(lambda a: _adaptive(a, rank, "avg"))
    handles(f"adaptive_max_pool{rank}d")(lambda a: _with_indices(_adaptive(a, rank, "max")))


def _with_indices(best: Value) -> list[Value]:
    return [best, Unavailable(shape=best.shape, dtype=torch.int64, name="indices of adaptive_max_pool")]


for _rank in (1, 2, 3):
    _pools(_rank)


def _adaptive(a: Arguments, rank: int, how: str) -> Value:
    value = a.self_
    lead = len(value.shape) - rank
    sizes, wanted = values(value.shape)[lead:], a.out_shape[lead:]
    if all(w == 1 for w in wanted):
        dims = tuple(range(lead, lead + rank))
        return mean(value, dims) if how == "avg" else reduce("max", value, dims, True, value.dtype)
    shape = (
        *value.shape[:lead],
        *(dim if dim.value == w else constant(w) for dim, w in zip(value.shape[lead:], wanted, strict=True)),
    )
    if all(s % w == 0 for s, w in zip(sizes, wanted, strict=True)):
        kernel = [s // w for s, w in zip(sizes, wanted, strict=True)]
        return pool(value, shape, kernel, kernel, [0] * rank, [1] * rank, how)
    letters = ["d", "h", "w"][3 - rank :]

    def write(e: Emitter, i: Index) -> str:
        coords = i.coords()
        acc = e.declare(ctype(value.dtype), "acc", "0.0f" if how == "avg" else "-INFINITY")
        e.block.own.discard(acc)
        bounds = []
        for d in range(rank):
            c, size, out = coords[lead + d], e.size(value.shape[lead + d]), e.size(shape[lead + d])
            low = hold(e, f"{c} * {size} / {out}", f"{letters[d]}0")
            high = hold(e, f"(({c} + 1) * {size} + {out} - 1) / {out}", f"{letters[d]}1")
            bounds.append((low, high))

        def windows(d: int) -> None:
            if d == rank:
                v = e.value(
                    value,
                    at(
                        value.shape,
                        [
                            *coords[:lead],
                            *[n if value.shape[lead + k].value > 1 else "0" for k, n in enumerate(letters)],
                        ],
                    ),
                )
                e.line(f"{acc} += {v};" if how == "avg" else f"{acc} = fmaxf({acc}, {v});")
                return
            low, high = bounds[d]
            with e.inside(f"for (int {letters[d]} = {low}; {letters[d]} < {high}; ++{letters[d]})"):
                windows(d + 1)

        windows(0)
        if how == "avg":
            count = " * ".join(f"({high} - {low})" for low, high in bounds)
            e.line(f"{acc} /= {count if rank == 1 else f'({count})'};")
        return acc

    return Written(
        shape=shape, dtype=value.dtype, args=(value,), write=write, heavy=True, name=f"adaptive_{how}_pool"
    )
