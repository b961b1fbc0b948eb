"""Elementwise operators of one value: their CUDA, in the words of the house style (``ops.py``)."""

from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.lower import (
    Arguments,
    handles,
    point,
    require,
)
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.values import Value

_UNARY = {
    "relu": "fmaxf({0}, 0.0f)",  "sigmoid": "1.0f / (1.0f + expf(-{0}))",
    "tanh": "tanhf({0})", "exp": "expf({0})", "expm1": "expm1f({0})", "exp2": "exp2f({0})", "log": "logf({0})",
    "log1p": "log1pf({0})", "log2": "log2f({0})", "log10": "log10f({0})", "sqrt": "sqrtf({0})", "rsqrt": "rsqrtf({0})",
    "reciprocal": "1.0f / {0}", "sin": "sinf({0})", "cos": "cosf({0})", "tan": "tanf({0})", "asin": "asinf({0})",
    "acos": "acosf({0})", "atan": "atanf({0})", "sinh": "sinhf({0})", "cosh": "coshf({0})", "asinh": "asinhf({0})",
    "acosh": "acoshf({0})", "atanh": "atanhf({0})", "erf": "erff({0})", "erfc": "erfcf({0})", "erfinv": "erfinvf({0})",
    "lgamma": "lgammaf({0})", "silu": "{0} / (1.0f + expf(-{0}))", "mish": "{0} * tanhf(log1pf(expf({0})))",
    "hardswish": "{0} * fminf(fmaxf({0} + 3.0f, 0.0f), 6.0f) * 0.16666667f",
    "hardsigmoid": "fminf(fmaxf({0} * 0.16666667f + 0.5f, 0.0f), 1.0f)",
    "log_sigmoid": "fminf({0}, 0.0f) - log1pf(expf(-fabsf({0})))",
    "selu": "1.05070099f * ({0} > 0.0f ? {0} : 1.67326324f * expm1f({0}))",
    "deg2rad": "{0} * 0.01745329f", "rad2deg": "{0} * 57.2957795f",
    "sinc": "{0} == 0.0f ? 1.0f : sinf(3.14159265f * {0}) / (3.14159265f * {0})",
    "frac": "{0} - truncf({0})", "special_expit": "1.0f / (1.0f + expf(-{0}))",
}  # fmt: skip
_ROUNDING = {
    "floor": "floorf({0})",
    "ceil": "ceilf({0})",
    "round": "rintf({0})",
    "trunc": "truncf({0})",
    "fix": "truncf({0})",
}
_SPELLINGS = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "special_erf": "erf", "special_expm1": "expm1", "special_log1p": "log1p", "special_exp2": "exp2",
    "special_sinc": "sinc", "special_erfc": "erfc",
}  # fmt: skip


def _unary(template: str) -> Any:
    return lambda a: point(template, a.self_, dtype=a.out_dtype)


for _name, _template in _UNARY.items():
    handles(_name, *(k for k, v in _SPELLINGS.items() if v == _name))(_unary(_template))


def _rounded(template: str) -> Any:
    def handler(a: Arguments) -> Value:
        require(getattr(a, "decimals", None) in (None, 0), "round to decimals")
        return point(template, a.self_, dtype=a.out_dtype) if a.out_dtype.is_floating_point else a.self_

    return handler


for _name, _template in _ROUNDING.items():
    handles(_name)(_rounded(_template))


@handles("relu")
def relu(a: Arguments) -> Value:
    if not a.out_dtype.is_floating_point:
        return point("{0} > 0 ? {0} : 0", a.self_, dtype=a.out_dtype)
    if may_be_nan(a.self_):
        return point("{0} < 0.0f ? 0.0f : {0}", a.self_, dtype=a.out_dtype)
    return point("fmaxf({0}, 0.0f)", a.self_, dtype=a.out_dtype)


@handles("relu6")
def relu6(a: Arguments) -> Value:
    if may_be_nan(a.self_):
        return point("{0} < 0.0f ? 0.0f : ({0} > 6.0f ? 6.0f : {0})", a.self_, dtype=a.out_dtype)
    return point("fminf(fmaxf({0}, 0.0f), 6.0f)", a.self_, dtype=a.out_dtype)


@handles("abs", "absolute")
def absolute(a: Arguments) -> Value:
    return point(
        "fabsf({0})" if a.out_dtype.is_floating_point else "{0} < 0 ? -{0} : {0}", a.self_, dtype=a.out_dtype
    )


@handles("neg", "negative")
def negative(a: Arguments) -> Value:
    return point("-{0}", a.self_, dtype=a.out_dtype)


@handles("sign", "sgn")
def sign(a: Arguments) -> Value:
    if a.out_dtype == torch.bool:
        return a.self_
    kind = "(float)" if a.out_dtype.is_floating_point else ""
    zero = "0.0f" if a.out_dtype.is_floating_point else "0"
    return point(f"{kind}(({{0}} > {zero}) - ({{0}} < {zero}))", a.self_, dtype=a.out_dtype)


@handles("square")
def square(a: Arguments) -> Value:
    return point("{0} * {0}", a.self_, dtype=a.out_dtype)
