"""Operators over rows, made of plain reductions."""

from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.arithmetic import extreme
from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axes,
    axis,
    cast,
    common_shape,
    expand,
    handles,
    point,
    require,
    reshape,
)
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.values import (
    Constant,
    Point,
    Reduced,
    ReduceOp,
    Size,
    Value,
    times,
    values,
)

_LARGE = 1 << 18
"""Elements from which a reduction is worth two kernels."""
_FEW_BLOCKS, _BLOCKS = 16, 512
_FEW_THREADS, _THREADS = 1 << 12, 1 << 15


def reduce(
    op: ReduceOp, value: Value, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype, strict: bool = True
) -> Value:
    """``strict``: a NaN among the elements is the largest and the smallest of them, as PyTorch has it."""
    require(not isinstance(value, Constant), "a reduction of constants")
    if not value.shape:
        return value
    nans = strict and op not in ("sum", "prod") and may_be_nan(value)
    source, over = value, dims
    parts = _parts(value, dims) if not op.startswith("arg") else 1
    if parts > 1:
        first, sizes = dims[0], list(values(value.shape))
        whole = times([value.shape[d] for d in dims]).value
        cut = reshape(value, [*sizes[:first], parts, whole // parts, *sizes[dims[-1] + 1 :]])
        source, over = _reduced(op, cut, (first + 1,), dtype, nans), (first,)
    out = _reduced(op, source, over, dtype, nans)
    return kept(out, value, dims) if keepdim else out


def _reduced(op: ReduceOp, value: Value, dims: tuple[int, ...], dtype: torch.dtype, nans: bool) -> Value:
    shape = tuple(dim for d, dim in enumerate(value.shape) if d not in dims)
    return Reduced(shape=shape, dtype=dtype, op=op, arg=value, dims=dims, name=op, nans=nans)


def _parts(value: Value, dims: tuple[int, ...]) -> int:
    """Into how many parts long rows are cut, 1 for none: where there are so few that most of a GPU would stand idle.

    Parts are reduced by a kernel of their own, and their results by another.
    """
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)):
        return 1
    columns = times([value.shape[d] for d in dims]).value
    rows = times(value.shape).value // max(1, columns)
    trailing = dims[-1] == len(value.shape) - 1
    few, wanted, least = (_FEW_BLOCKS, _BLOCKS, 2048) if trailing else (_FEW_THREADS, _THREADS, 32)
    if rows >= few or rows * columns < _LARGE:
        return 1
    parts = 1
    while rows * parts < wanted and columns % (2 * parts) == 0 and columns // (2 * parts) >= least:
        parts *= 2
    return parts


def kept(out: Value, value: Value, dims: tuple[int, ...]) -> Value:
    """``out`` with the reduced dimensions as ones."""
    return reshape(out, [1 if d in dims else size for d, size in enumerate(values(value.shape))])


def total(value: Value, dims: tuple[int, ...], keepdim: bool = True) -> Value:
    return reduce("sum", value, dims, keepdim, value.dtype)


def mean(value: Value, dims: tuple[int, ...], keepdim: bool = True) -> Value:
    if not value.shape:
        return value
    sums = total(value, dims, keepdim)
    out = point("{0} / {1}", sums, columns(value, dims), dtype=value.dtype)
    out.name = "mean"
    return out


def columns(value: Value, dims: tuple[int, ...], less: int = 0) -> Value:
    """The length of a row less ``less``: written by the name that the size has in the kernel."""
    size = times([value.shape[d] for d in dims])

    def write(e: Emitter, _: Index) -> str:
        return f"({e.size(size)} - {less})" if less else e.size(size)

    return Size(shape=(), dtype=value.dtype, args=(), write=write)


@handles("sum", "nansum")
def sum_(a: Arguments) -> Value:
    value = cast(a.self_, a.out_dtype)
    if "nansum" in a.operator:
        value = point("isnan({0}) ? 0.0f : {0}", value, dtype=a.out_dtype)
    dims = axes(getattr(a, "dim", None), len(value.shape))
    return reduce("sum", value, dims, getattr(a, "keepdim", False), a.out_dtype)


@handles("mean")
def mean_(a: Arguments) -> Value:
    value = cast(a.self_, a.out_dtype)
    return mean(value, axes(getattr(a, "dim", None), len(value.shape)), getattr(a, "keepdim", False))


@handles("prod")
def prod_(a: Arguments) -> Value:
    value = cast(a.self_, a.out_dtype)
    return reduce(
        "prod",
        value,
        axes(getattr(a, "dim", None), len(value.shape)),
        getattr(a, "keepdim", False),
        a.out_dtype,
    )


@handles("amax", "amin")
def amax(a: Arguments) -> Value:
    op: ReduceOp = "max" if a.operator == "amax" else "min"
    return reduce(op, a.self_, axes(a.dim, len(a.self_.shape)), a.keepdim, a.out_dtype)


@handles("max", "min")
def max_(a: Arguments) -> Any:
    op: ReduceOp = "max" if a.operator == "max" else "min"
    rank = len(a.self_.shape)
    if hasattr(a, "other"):
        return extreme(op == "max", a.self_, a.other, a.out_dtype)
    if not hasattr(a, "dim"):
        return reduce(op, a.self_, tuple(range(rank)), False, a.out_dtype)
    dims = (axis(a.dim, rank),)
    where: ReduceOp = "argmax" if op == "max" else "argmin"
    return [
        reduce(op, a.self_, dims, a.keepdim, a.out_dtype),
        reduce(where, a.self_, dims, a.keepdim, torch.int64),
    ]


@handles("aminmax")
def aminmax(a: Arguments) -> list[Value]:
    dims = axes(a.dim, len(a.self_.shape))
    return [reduce(op, a.self_, dims, a.keepdim, a.out_dtype) for op in ("min", "max")]


@handles("argmax", "argmin")
def argmax(a: Arguments) -> Value:
    value = a.self_
    if a.dim is None:
        value = reshape(value, [times(value.shape).value])
        out = reduce(a.operator, value, (0,), False, torch.int64)
        return reshape(out, a.out_shape)
    return reduce(a.operator, value, (axis(a.dim, len(value.shape)),), a.keepdim, torch.int64)


@handles("any", "all")
def any_(a: Arguments) -> Value:
    dims = axes(getattr(a, "dim", None), len(a.self_.shape))
    truth = cast(cast(a.self_, torch.bool), torch.float32)
    if a.operator == "any":
        best = reduce("max", truth, dims, getattr(a, "keepdim", False), torch.float32)
    else:
        best = reduce("min", truth, dims, getattr(a, "keepdim", False), torch.float32)
    return cast(best, torch.bool)


@handles("count_nonzero")
def count_nonzero(a: Arguments) -> Value:
    dims = axes(getattr(a, "dim", None), len(a.self_.shape))
    return cast(total(cast(cast(a.self_, torch.bool), torch.float32), dims, False), torch.int64)


def variance(value: Value, dims: tuple[int, ...], correction: float, keepdim: bool) -> Value:
    squares = squared_deviations(value, mean(value, dims), dims, keepdim)
    return point("{0} / {1}", squares, columns(value, dims, int(correction)), dtype=value.dtype, name="var")


def squared_deviations(value: Value, centre: Value, dims: tuple[int, ...], keepdim: bool) -> Value:
    """The sum of squared deviations."""
    term = point("({0} - {1}) * ({0} - {1})", value, centre, dtype=value.dtype, inline=True)
    sums = total(term, dims, False)
    sums.name = "sq"
    return kept(sums, value, dims) if keepdim else sums


def _correction(a: Arguments) -> float:
    given = getattr(a, "correction", None)
    return given if given is not None else float(getattr(a, "unbiased", True))


@handles("var", "std")
def var(a: Arguments) -> Value:
    out = variance(
        a.self_,
        axes(getattr(a, "dim", None), len(a.self_.shape)),
        _correction(a),
        getattr(a, "keepdim", False),
    )
    if a.operator == "std":
        assert isinstance(out, Point)
        out.inline = True
        return point("sqrtf({0})", out, dtype=a.out_dtype)
    return out


@handles("var_mean", "std_mean")
def var_mean(a: Arguments) -> list[Value]:
    dims, keep = axes(getattr(a, "dim", None), len(a.self_.shape)), getattr(a, "keepdim", False)
    out = variance(a.self_, dims, _correction(a), keep)
    first = point("sqrtf({0})", out, dtype=a.self_.dtype) if a.operator == "std_mean" else out
    return [first, mean(a.self_, dims, keep)]


def norm(value: Value, p: float, dims: tuple[int, ...], keepdim: bool) -> Value:
    dtype = value.dtype
    if p == 2:
        squares = total(point("{0} * {0}", value, dtype=dtype, inline=True), dims, keepdim)
        return point("sqrtf({0})", squares, dtype=dtype, name="norm")
    size = point("fabsf({0})", value, dtype=dtype)
    if p == 1:
        return total(size, dims, keepdim)
    if p in (float("inf"), float("-inf")):
        return reduce("max" if p > 0 else "min", size, dims, keepdim, dtype)
    if p == 0:
        return total(cast(cast(value, torch.bool), dtype), dims, keepdim)
    powers = total(point("powf({0}, {1})", size, p, dtype=dtype), dims, keepdim)
    return point("powf({0}, {1})", powers, 1.0 / p, dtype=dtype)


@handles("norm", "linalg_vector_norm", "linalg_norm", "frobenius_norm")
def norm_(a: Arguments) -> Value:
    p = getattr(a, "p", getattr(a, "ord", 2))
    require(p is None or isinstance(p, int | float), "a matrix norm")
    dims = axes(getattr(a, "dim", None), len(a.self_.shape))
    require(a.operator != "linalg_norm" or p is None or len(dims) == 1, "a matrix norm")
    return norm(a.self_, 2 if p is None else p, dims, getattr(a, "keepdim", False))


@handles("dist")
def dist(a: Arguments) -> Value:
    difference = point("{0} - {1}", a.self_, a.other, dtype=a.out_dtype)
    return norm(difference, a.p, tuple(range(len(difference.shape))), False)


@handles("pairwise_distance")
def pairwise_distance(a: Arguments) -> Value:
    difference = point("{0} - {1} + {2}", a.x1, a.x2, a.eps, dtype=a.out_dtype)
    return norm(difference, a.p, (len(difference.shape) - 1,), a.keepdim)


@handles("cosine_similarity")
def cosine_similarity(a: Arguments) -> Value:
    shape = common_shape([a.x1.shape, a.x2.shape])
    x, y = expand(a.x1, shape), expand(a.x2, shape)
    dims = (axis(a.dim, len(shape)),)
    dot = total(point("{0} * {1}", x, y, dtype=a.out_dtype, inline=True), dims, False)
    sizes = [norm(v, 2, dims, False) for v in (x, y)]
    return point("{0} / (fmaxf({1}, {3}) * fmaxf({2}, {3}))", dot, *sizes, a.eps, dtype=a.out_dtype)
