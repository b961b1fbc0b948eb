"""Softmax and its relatives, and the norm layers."""

from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.lower import (
    Arguments,
    axes,
    axis,
    cast,
    handles,
    number,
    point,
    require,
    reshape,
)
from dice_training.cuke.traced.reductions import columns, mean, reduce, squared_deviations, total
from dice_training.cuke.traced.values import (
    Value,
    values,
)


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


def standardize(
    value: Value, dims: tuple[int, ...], eps: float, weight: Value | None, bias: Value | None
) -> Value:
    """Zero mean and unit variance over ``dims``, then scale and shift."""
    dtype = value.dtype
    centre = mean(value, dims)
    squares = squared_deviations(value, centre, dims, True)
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
