"""Operators over rows, made of plain reductions: statistics, softmax, norms, losses; and scans and orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axes,
    axis,
    cast,
    expand,
    handles,
    number,
    point,
    require,
    reshape,
)
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.pointwise import extreme
from dice_training.cuke.traced.values import (
    Constant,
    Point,
    Ranked,
    Reduced,
    ReduceOp,
    Scanned,
    Size,
    Value,
    constant,
    times,
    values,
)


def reduce(
    op: ReduceOp, value: Value, dims: tuple[int, ...], keepdim: bool, dtype: torch.dtype, strict: bool = True
) -> Value:
    """``strict``: a NaN among the elements is the largest and the smallest of them, as PyTorch has it."""
    require(not isinstance(value, Constant), "a reduction of constants")
    if not value.shape:
        return value
    shape = tuple(dim for d, dim in enumerate(value.shape) if d not in dims)
    nans = strict and op not in ("sum", "prod") and may_be_nan(value)
    out: Value = Reduced(shape=shape, dtype=dtype, op=op, arg=value, dims=dims, name=op, nans=nans)
    return kept(out, value, dims) if keepdim else out


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
    squares = _squares(value, mean(value, dims), dims, keepdim)
    return point("{0} / {1}", squares, columns(value, dims, int(correction)), dtype=value.dtype, name="var")


def _squares(value: Value, centre: Value, dims: tuple[int, ...], keepdim: bool) -> Value:
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
    from dice_training.cuke.traced.lower import common_shape

    shape = common_shape([a.x1.shape, a.x2.shape])
    x, y = expand(a.x1, shape), expand(a.x2, shape)
    dims = (axis(a.dim, len(shape)),)
    dot = total(point("{0} * {1}", x, y, dtype=a.out_dtype, inline=True), dims, False)
    sizes = [norm(v, 2, dims, False) for v in (x, y)]
    return point("{0} / (fmaxf({1}, {3}) * fmaxf({2}, {3}))", dot, *sizes, a.eps, dtype=a.out_dtype)


# -- softmax and its relatives


def _shifted(value: Value, dims: tuple[int, ...]) -> tuple[Value, Value, Value]:
    peak = reduce("max", value, dims, True, value.dtype, strict=False)
    terms = point("expf({0} - {1})", value, peak, dtype=value.dtype, inline=True)
    return peak, terms, total(terms, dims)


def softmax(value: Value, dim: int) -> Value:
    _, terms, sums = _shifted(value, (axis(dim, len(value.shape)),))
    return point(
        "{0} * {1}",
        terms,
        point("1.0f / {0}", sums, dtype=value.dtype, name="inv"),
        dtype=value.dtype,
        name="softmax",
    )


def log_softmax(value: Value, dim: int) -> Value:
    peak, _, sums = _shifted(value, (axis(dim, len(value.shape)),))
    lse = point("logf({0})", sums, dtype=value.dtype, name="lse")
    return point("{0} - {1} - {2}", value, peak, lse, dtype=value.dtype, name="log_softmax")


@handles("softmax", "_softmax", "special_softmax")
def softmax_(a: Arguments) -> Value:
    return softmax(cast(a.self_, a.out_dtype), a.dim) if a.self_.shape else number(1, a.out_dtype)


@handles("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax_(a: Arguments) -> Value:
    return log_softmax(cast(a.self_, a.out_dtype), a.dim)


@handles("logsumexp", "special_logsumexp")
def logsumexp(a: Arguments) -> Value:
    dims = axes(a.dim, len(a.self_.shape))
    peak, _, sums = _shifted(cast(a.self_, a.out_dtype), dims)
    out = point("{0} + logf({1})", peak, sums, dtype=a.out_dtype)
    return reshape(out, a.out_shape)


# -- norms


def standardize(
    value: Value, dims: tuple[int, ...], eps: float, weight: Value | None, bias: Value | None
) -> Value:
    """Zero mean and unit variance over ``dims``, then scale and shift."""
    dtype = value.dtype
    centre = mean(value, dims)
    squares = _squares(value, centre, dims, True)
    rstd = point("rsqrtf({0} / {1} + {2})", squares, columns(value, dims), eps, dtype=dtype, name="rstd")
    return scaled(value, centre, rstd, weight, bias)


def scaled(value: Value, centre: Value, rstd: Value, weight: Value | None, bias: Value | None) -> Value:
    dtype = value.dtype
    if weight is not None and bias is not None:
        return point("({0} - {1}) * {2} * {3} + {4}", value, centre, rstd, weight, bias, dtype=dtype)
    if weight is not None:
        return point("({0} - {1}) * {2} * {3}", value, centre, rstd, weight, dtype=dtype)
    if bias is not None:
        return point("({0} - {1}) * {2} + {3}", value, centre, rstd, bias, dtype=dtype)
    return point("({0} - {1}) * {2}", value, centre, rstd, dtype=dtype)


def affine(value: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None and bias is not None:
        return point("{0} * {1} + {2}", value, weight, bias, dtype=value.dtype)
    if weight is not None:
        return point("{0} * {1}", value, weight, dtype=value.dtype)
    return point("{0} + {1}", value, bias, dtype=value.dtype) if bias is not None else value


def _per_channel(parameter: Value | None, rank: int) -> Value | None:
    return None if parameter is None else reshape(parameter, [1, parameter.shape[0].value, *[1] * (rank - 2)])


@handles("layer_norm", "native_layer_norm")
def layer_norm(a: Arguments) -> Any:
    rank, last = len(a.input.shape), len(a.normalized_shape)
    out = standardize(a.input, tuple(range(rank - last, rank)), a.eps, a.weight, a.bias)
    return [out, None, None] if a.operator == "native_layer_norm" else out


@handles("rms_norm")
def rms_norm(a: Arguments) -> Value:
    rank, last = len(a.input.shape), len(a.normalized_shape)
    dims = tuple(range(rank - last, rank))
    eps = a.eps if a.eps is not None else torch.finfo(a.out_dtype).eps
    squares = total(point("{0} * {0}", a.input, dtype=a.out_dtype, inline=True), dims)
    inverse = point(
        "rsqrtf({0} / {1} + {2})", squares, columns(a.input, dims), eps, dtype=a.out_dtype, name="rstd"
    )
    if a.weight is None:
        return point("{0} * {1}", a.input, inverse, dtype=a.out_dtype)
    return point("{0} * {1} * {2}", a.input, inverse, a.weight, dtype=a.out_dtype)


@handles("group_norm")
def group_norm(a: Arguments) -> Value:
    n, c, *rest = values(a.input.shape)
    inner = 1
    for size in rest:
        inner *= size
    grouped = reshape(a.input, [n, a.num_groups, c // a.num_groups * inner])
    out = reshape(standardize(grouped, (2,), a.eps, None, None), values(a.input.shape))
    out = (
        type(out)(**{**vars_of(out), "shape": a.input.shape})
        if values(out.shape) == values(a.input.shape)
        else out
    )
    rank = len(a.input.shape)
    return affine(out, _per_channel(a.weight, rank), _per_channel(a.bias, rank))


def vars_of(value: Value) -> dict[str, Any]:
    return {k: v for k, v in vars(value).items() if k not in ("uses", "memory")}


@handles("instance_norm")
def instance_norm(a: Arguments) -> Value:
    if a.use_input_stats:
        return _channels(a, tuple(range(2, len(a.input.shape))))
    return _by_running(a)


def _channels(a: Arguments, dims: tuple[int, ...]) -> Value:
    rank = len(a.input.shape)
    return standardize(a.input, dims, a.eps, _per_channel(a.weight, rank), _per_channel(a.bias, rank))


def _by_running(a: Arguments) -> Value:
    rank, dtype = len(a.input.shape), a.out_dtype
    shift, scale = _per_channel(a.running_mean, rank), _per_channel(a.running_var, rank)
    assert shift is not None and scale is not None
    rstd = point("rsqrtf({0} + {1})", scale, a.eps, dtype=dtype, name="rstd", inline=True)
    return scaled(a.input, shift, rstd, _per_channel(a.weight, rank), _per_channel(a.bias, rank))


@handles("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "cudnn_batch_norm")
def batch_norm(a: Arguments) -> Value:
    if not a.training:
        return _by_running(a)
    require(a.running_mean is None, "batch norm that updates its statistics")
    return _channels(a, tuple(d for d in range(len(a.input.shape)) if d != 1))


@handles("renorm", "weight_norm")
def renorm(a: Arguments) -> Value:
    require(False, f"operator {a.operator}")
    return a.self_


# -- losses


def _loss(value: Value, reduction: int) -> Value:
    """``reduction``: 0 none, 1 mean, 2 sum."""
    every = tuple(range(len(value.shape)))
    return (
        value
        if reduction == 0
        else mean(value, every, False)
        if reduction == 1
        else total(value, every, False)
    )


@handles("mse_loss")
def mse_loss(a: Arguments) -> Value:
    difference = point("{0} - {1}", a.self_, a.target, dtype=a.out_dtype)
    return _loss(point("{0} * {0}", difference, dtype=a.out_dtype), a.reduction)


@handles("l1_loss")
def l1_loss(a: Arguments) -> Value:
    return _loss(point("fabsf({0} - {1})", a.self_, a.target, dtype=a.out_dtype), a.reduction)


@handles("smooth_l1_loss")
def smooth_l1_loss(a: Arguments) -> Value:
    gap = point("fabsf({0} - {1})", a.self_, a.target, dtype=a.out_dtype)
    return _loss(
        point("{0} < {1} ? 0.5f * {0} * {0} / {1} : {0} - 0.5f * {1}", gap, a.beta, dtype=a.out_dtype),
        a.reduction,
    )


@handles("huber_loss")
def huber_loss(a: Arguments) -> Value:
    gap = point("fabsf({0} - {1})", a.self_, a.target, dtype=a.out_dtype)
    return _loss(
        point("{0} <= {1} ? 0.5f * {0} * {0} : {1} * ({0} - 0.5f * {1})", gap, a.delta, dtype=a.out_dtype),
        a.reduction,
    )


@handles("binary_cross_entropy")
def binary_cross_entropy(a: Arguments) -> Value:
    out = point(
        "-({1} * fmaxf(logf({0}), -100.0f) + (1.0f - {1}) * fmaxf(log1pf(-{0}), -100.0f))",
        a.self_,
        a.target,
        dtype=a.out_dtype,
    )
    if a.weight is not None:
        out = point("{0} * {1}", out, a.weight, dtype=a.out_dtype)
    return _loss(out, a.reduction)


@handles("binary_cross_entropy_with_logits")
def bce_with_logits(a: Arguments) -> Value:
    require(a.pos_weight is None, "pos_weight")
    out = point(
        "fmaxf({0}, 0.0f) - {0} * {1} + log1pf(expf(-fabsf({0})))", a.self_, a.target, dtype=a.out_dtype
    )
    if a.weight is not None:
        out = point("{0} * {1}", out, a.weight, dtype=a.out_dtype)
    return _loss(out, a.reduction)


@handles("kl_div")
def kl_div(a: Arguments) -> Value:
    if a.log_target:
        out = point("expf({1}) * ({1} - {0})", a.self_, a.target, dtype=a.out_dtype)
    else:
        out = point("{1} > 0.0f ? {1} * (logf({1}) - {0}) : 0.0f", a.self_, a.target, dtype=a.out_dtype)
    return _loss(out, a.reduction)


@handles("soft_margin_loss")
def soft_margin_loss(a: Arguments) -> Value:
    return _loss(point("log1pf(expf(-{1} * {0}))", a.self_, a.target, dtype=a.out_dtype), a.reduction)


@handles("hinge_embedding_loss")
def hinge_embedding_loss(a: Arguments) -> Value:
    return _loss(
        point("{1} == 1.0f ? {0} : fmaxf({2} - {0}, 0.0f)", a.self_, a.target, a.margin, dtype=a.out_dtype),
        a.reduction,
    )


@handles("margin_ranking_loss")
def margin_ranking_loss(a: Arguments) -> Value:
    return _loss(
        point(
            "fmaxf(-{2} * ({0} - {1}) + {3}, 0.0f)", a.input1, a.input2, a.target, a.margin, dtype=a.out_dtype
        ),
        a.reduction,
    )


@handles("poisson_nll_loss")
def poisson_nll_loss(a: Arguments) -> Value:
    require(not a.full, "poisson_nll_loss with full")
    template = "expf({0}) - {1} * {0}" if a.log_input else "{0} - {1} * logf({0} + {2})"
    return _loss(
        point(template, a.input, a.target, *([] if a.log_input else [a.eps]), dtype=a.out_dtype), a.reduction
    )


@handles("triplet_margin_loss")
def triplet_margin_loss(a: Arguments) -> Value:
    require(not a.swap, "triplet_margin_loss with swap")

    def distance(x: Value, y: Value) -> Value:
        difference = point("{0} - {1} + {2}", x, y, a.eps, dtype=a.out_dtype)
        return norm(difference, a.p, (len(difference.shape) - 1,), False)

    out = point(
        "fmaxf({0} - {1} + {2}, 0.0f)",
        distance(a.anchor, a.positive),
        distance(a.anchor, a.negative),
        a.margin,
        dtype=a.out_dtype,
    )
    return _loss(out, a.reduction)


@handles("cross_entropy_loss", "nll_loss_nd", "nll_loss")
def cross_entropy(a: Arguments) -> Value:
    require(a.weight is None and getattr(a, "label_smoothing", 0) == 0, "cross entropy with weights")
    scores = a.self_
    dim = 1 if len(scores.shape) > 1 else 0
    logs = log_softmax(scores, dim) if a.operator == "cross_entropy_loss" else scores
    if a.target.dtype.is_floating_point:
        rows = total(point("-{1} * {0}", logs, a.target, dtype=a.out_dtype), (dim,), False)
        return _loss(rows, a.reduction)
    from dice_training.cuke.traced.movement import gather

    a.dim, a.index, a.self_ = (
        dim,
        reshape(a.target, [1 if d == dim else s for d, s in enumerate(values(scores.shape))]),
        logs,
    )
    picked = reshape(gather(a), values(a.target.shape))
    return _loss(point("-{0}", picked, dtype=a.out_dtype), a.reduction)


# -- scans and orders


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
