"""Arithmetic of two values, bounds and powers."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.lower import (
    Arguments,
    cast,
    handles,
    point,
    require,
)
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.values import Value


def bounded(value: Value, low: Any, high: Any, dtype: torch.dtype) -> Value:
    """``value`` between ``low`` and ``high``, either of them None for no bound; NaN stays NaN."""
    plain = dtype.is_floating_point and not may_be_nan(value)
    if low is not None and high is not None:
        template = "fminf(fmaxf({0}, {1}), {2})" if plain else "{0} < {1} ? {1} : ({0} > {2} ? {2} : {0})"
        return point(template, value, low, high, dtype=dtype)
    if low is not None:
        return point("fmaxf({0}, {1})" if plain else "{0} < {1} ? {1} : {0}", value, low, dtype=dtype)
    assert high is not None
    return point("fminf({0}, {1})" if plain else "{0} > {1} ? {1} : {0}", value, high, dtype=dtype)


@handles("add")
def add(a: Arguments) -> Value:
    alpha = getattr(a, "alpha", 1)
    if a.out_dtype == torch.bool:
        return point("{0} || {1}", a.self_, a.other, dtype=a.out_dtype)
    if alpha in (1, None):
        return point("{0} + {1}", a.self_, a.other, dtype=a.out_dtype)
    if a.out_dtype == torch.float32:
        return point("fmaf({2}, {1}, {0})", a.self_, a.other, alpha, dtype=a.out_dtype)
    return point("{0} + {2} * {1}", a.self_, a.other, alpha, dtype=a.out_dtype)


@handles("sub", "subtract")
def sub(a: Arguments) -> Value:
    alpha = getattr(a, "alpha", 1)
    if alpha in (1, None):
        return point("{0} - {1}", a.self_, a.other, dtype=a.out_dtype)
    return point("{0} - {2} * {1}", a.self_, a.other, alpha, dtype=a.out_dtype)


@handles("rsub")
def rsub(a: Arguments) -> Value:
    require(getattr(a, "alpha", 1) in (1, None), "rsub with alpha")
    return point("{1} - {0}", a.self_, a.other, dtype=a.out_dtype)


@handles("mul", "multiply")
def mul(a: Arguments) -> Value:
    return point(
        "{0} && {1}" if a.out_dtype == torch.bool else "{0} * {1}", a.self_, a.other, dtype=a.out_dtype
    )


@handles("div", "divide", "true_divide")
def div(a: Arguments) -> Value:
    mode = getattr(a, "rounding_mode", None)
    floating = a.out_dtype.is_floating_point
    if mode is None:
        if isinstance(a.other, int | float) and a.other != 0:
            return point("{0} * (1.0f / {1})", a.self_, a.other, dtype=a.out_dtype)
        return point("{0} / {1}", a.self_, a.other, dtype=a.out_dtype)
    if floating:
        return point(
            "floorf({0} / {1})" if mode == "floor" else "truncf({0} / {1})",
            a.self_,
            a.other,
            dtype=a.out_dtype,
        )
    if mode == "trunc":
        return point("{0} / {1}", a.self_, a.other, dtype=a.out_dtype)
    return point(
        "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))", a.self_, a.other, dtype=a.out_dtype
    )


@handles("floor_divide")
def floor_divide(a: Arguments) -> Value:
    a.rounding_mode = "floor"
    return div(a)


@handles("fmod")
def fmod(a: Arguments) -> Value:
    return point(
        "fmodf({0}, {1})" if a.out_dtype.is_floating_point else "{0} % {1}",
        a.self_,
        a.other,
        dtype=a.out_dtype,
    )


@handles("remainder")
def remainder(a: Arguments) -> Value:
    template = "{0} - {1} * floorf({0} / {1})" if a.out_dtype.is_floating_point else "({0} % {1} + {1}) % {1}"
    return point(template, a.self_, a.other, dtype=a.out_dtype)


def extreme(high: bool, x: Any, y: Any, dtype: torch.dtype) -> Value:
    """The larger (smaller) of two; NaN where either is."""
    sign = ">" if high else "<"
    if not dtype.is_floating_point:
        return point(f"{{0}} {sign} {{1}} ? {{0}} : {{1}}", x, y, dtype=dtype)
    if any(isinstance(v, Value) and may_be_nan(v) for v in (x, y)):
        return point(f"{{0}} {sign} {{1}} || isnan({{0}}) ? {{0}} : {{1}}", x, y, dtype=dtype)
    return point("fmaxf({0}, {1})" if high else "fminf({0}, {1})", x, y, dtype=dtype)


@handles("maximum", "minimum")
def maximum(a: Arguments) -> Value:
    return extreme(a.operator == "maximum", a.self_, a.other, a.out_dtype)


@handles("fmax", "fmin")
def fmax(a: Arguments) -> Value:
    return point(
        "fmaxf({0}, {1})" if a.operator == "fmax" else "fminf({0}, {1})", a.self_, a.other, dtype=a.out_dtype
    )


_TWO = {"atan2": "atan2f({0}, {1})", "arctan2": "atan2f({0}, {1})", "hypot": "hypotf({0}, {1})", "copysign": "copysignf({0}, {1})",
        "xlogy": "{0} == 0.0f ? 0.0f : {0} * logf({1})", "nextafter": "nextafterf({0}, {1})",
        "logaddexp": "fmaxf({0}, {1}) + log1pf(expf(-fabsf({0} - {1})))", "ldexp": "{0} * exp2f({1})",
        "heaviside": "{0} == 0.0f ? {1} : ({0} > 0.0f ? 1.0f : 0.0f)", "float_power": "pow({0}, {1})"}  # fmt: skip


def _two(template: str) -> Any:
    return lambda a: point(template, a.self_, a.other, dtype=a.out_dtype)


for _name, _template in _TWO.items():
    handles(_name)(_two(_template))


@handles("pow")
def power(a: Arguments) -> Value:
    base, exponent = a.self_, a.exponent
    if isinstance(exponent, int | float):
        simple: dict[float, str] = {
            1: "{0}",
            2: "{0} * {0}",
            3: "{0} * {0} * {0}",
            4: "({0} * {0}) * ({0} * {0})",
        }
        if a.out_dtype.is_floating_point:
            simple |= {0.5: "sqrtf({0})", -1: "1.0f / {0}", -0.5: "rsqrtf({0})", -2: "1.0f / ({0} * {0})"}
        if exponent == 1:
            return cast(base, a.out_dtype)
        if exponent in simple:
            return point(simple[exponent], base, dtype=a.out_dtype)
    require(a.out_dtype.is_floating_point, "pow of integers")
    return point("powf({0}, {1})", base, exponent, dtype=a.out_dtype)


@handles("clamp", "clip", "clamp_min", "clamp_max")
def clamp(a: Arguments) -> Value:
    return bounded(a.self_, getattr(a, "min", None), getattr(a, "max", None), a.out_dtype)


@handles("lerp")
def lerp(a: Arguments) -> Value:
    return point("fmaf({2}, {1} - {0}, {0})", a.self_, a.end, a.weight, dtype=a.out_dtype)


@handles("addcmul")
def addcmul(a: Arguments) -> Value:
    if a.value == 1:
        return point("fmaf({1}, {2}, {0})", a.self_, a.tensor1, a.tensor2, dtype=a.out_dtype)
    return point("fmaf({3} * {1}, {2}, {0})", a.self_, a.tensor1, a.tensor2, a.value, dtype=a.out_dtype)


@handles("addcdiv")
def addcdiv(a: Arguments) -> Value:
    if a.value == 1:
        return point("{0} + {1} / {2}", a.self_, a.tensor1, a.tensor2, dtype=a.out_dtype)
    return point("{0} + {3} * {1} / {2}", a.self_, a.tensor1, a.tensor2, a.value, dtype=a.out_dtype)


@handles("nan_to_num")
def nan_to_num(a: Arguments) -> Value:
    if not a.out_dtype.is_floating_point:
        return a.self_
    top = 3.40282347e38 if a.out_dtype == torch.float32 else torch.finfo(a.out_dtype).max
    nan, high, low = (
        a.nan or 0.0,
        a.posinf if a.posinf is not None else top,
        a.neginf if a.neginf is not None else -top,
    )
    return point(
        "isnan({0}) ? {1} : (isinf({0}) ? ({0} > 0.0f ? {2} : {3}) : {0})",
        a.self_,
        nan,
        high,
        low,
        dtype=a.out_dtype,
    )
