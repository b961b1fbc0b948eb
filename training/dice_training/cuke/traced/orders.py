"""Scans along a dimension, and orders: sorting, top k, medians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    cast,
    handles,
    number,
    require,
    reshape,
)
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.values import (
    Ranked,
    Scanned,
    Value,
    constant,
    times,
)


@handles("cumsum", "cumprod", "logcumsumexp")
def cumulative(a: Arguments) -> Value:
    value = cast(a.self_, a.out_dtype)
    if not value.shape:
        return value
    start = {"cumsum": 0, "cumprod": 1, "logcumsumexp": float("-inf")}[a.operator]
    step = {
        "cumsum": "acc += {0};",
        "cumprod": "acc *= {0};",
        "logcumsumexp": "acc = fmaxf(acc, {0}) + log1pf(expf(-fabsf(acc - {0})));",
    }[a.operator]
    return Scanned(
        shape=value.shape,
        dtype=a.out_dtype,
        arg=value,
        dim=axis(a.dim, len(value.shape)),
        start=number(start, a.out_dtype).text,
        step=step,
    )


@handles("cummax", "cummin")
def cummax(a: Arguments) -> list[Value]:
    dim = axis(a.dim, len(a.self_.shape))
    floating = a.out_dtype.is_floating_point
    require(floating, "cummax of integers")
    high = a.operator == "cummax"
    start = number(float("-inf") if high else float("inf"), a.out_dtype).text
    step = f"acc = f{'max' if high else 'min'}f(acc, {{0}});"
    values_ = Scanned(shape=a.self_.shape, dtype=a.out_dtype, arg=a.self_, dim=dim, start=start, step=step)
    return [values_, Unavailable(shape=a.self_.shape, dtype=torch.int64, name=f"indices of {a.operator}")]


@dataclass(eq=False, kw_only=True)
class Unavailable(Value):
    """A second result that nothing writes; asking for it fails."""


def ranked(
    value: Value, dim: int, descending: bool, first: int, count: int | None, keep: bool
) -> list[Value]:
    """Elements and positions of rank ``first`` and following; ``count`` None: the one of rank ``first`` alone."""
    require(not may_be_nan(value), "an order of what may be NaN")
    dims = list(value.shape)
    if count is None:
        dims = dims[:dim] + ([constant(1)] if keep else []) + dims[dim + 1 :]
    elif count != value.shape[dim].value:
        dims[dim] = constant(count)
    made = []
    for index in (False, True):
        made.append(
            Ranked(
                shape=tuple(dims),
                dtype=torch.int64 if index else value.dtype,
                arg=value,
                dim=dim,
                descending=descending,
                first=first,
                index=index,
            )
        )
    return made


@handles("sort", "msort", "argsort")
def sort(a: Arguments) -> Any:
    require(a.self_.shape, "sort of a scalar")
    dim = axis(getattr(a, "dim", 0 if a.operator == "msort" else -1), len(a.self_.shape))
    both = ranked(a.self_, dim, bool(getattr(a, "descending", False)), 0, a.self_.shape[dim].value, True)
    return both if a.operator == "sort" else both[1] if a.operator == "argsort" else both[0]


@handles("topk")
def topk(a: Arguments) -> list[Value]:
    dim = axis(a.dim, len(a.self_.shape))
    return ranked(a.self_, dim, bool(a.largest), 0, a.k, True)


@handles("kthvalue")
def kthvalue(a: Arguments) -> list[Value]:
    return ranked(a.self_, axis(a.dim, len(a.self_.shape)), False, a.k - 1, None, a.keepdim)


@handles("median", "nanmedian")
def median(a: Arguments) -> Any:
    if not hasattr(a, "dim"):
        flat = reshape(a.self_, [times(a.self_.shape).value])
        return ranked(flat, 0, False, (flat.shape[0].value - 1) // 2, None, False)[0]
    dim = axis(a.dim, len(a.self_.shape))
    return ranked(a.self_, dim, False, (a.self_.shape[dim].value - 1) // 2, None, a.keepdim)
