"""Elementwise operators: their CUDA, in the words of the house style (``ops.py``)."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.lower import (
    Arguments,
    cast,
    common_shape,
    expand,
    handles,
    number,
    point,
    require,
)
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.values import Unwritten, Value, Written

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


# -- activations with arguments


@handles("leaky_relu")
def leaky_relu(a: Arguments) -> Value:
    return point("{0} > 0.0f ? {0} : {0} * {1}", a.self_, a.negative_slope, dtype=a.out_dtype)


@handles("elu")
def elu(a: Arguments) -> Value:
    if a.scale == 1 and a.input_scale == 1:
        return point("{0} > 0.0f ? {0} : {1} * expm1f({0})", a.self_, a.alpha, dtype=a.out_dtype)
    return point(
        "{3} * ({0} > 0.0f ? {0} : {1} * expm1f({0} * {2}))",
        a.self_,
        a.alpha,
        a.input_scale,
        a.scale,
        dtype=a.out_dtype,
    )


@handles("celu")
def celu(a: Arguments) -> Value:
    return point(
        "fmaxf({0}, 0.0f) + fminf({1} * expm1f({0} / {1}), 0.0f)", a.self_, a.alpha, dtype=a.out_dtype
    )


@handles("gelu")
def gelu(a: Arguments) -> Value:
    if a.approximate == "tanh":
        return point(
            "0.5f * {0} * (1.0f + tanhf(0.79788456f * ({0} + 0.044715f * {0} * {0} * {0})))",
            a.self_,
            dtype=a.out_dtype,
        )
    return point("0.5f * {0} * (1.0f + erff({0} * 0.70710678f))", a.self_, dtype=a.out_dtype)


@handles("softplus")
def softplus(a: Arguments) -> Value:
    if a.beta == 1:
        return point(
            f"{{0}} > {float(a.threshold)}f ? {{0}} : log1pf(expf({{0}}))", a.self_, dtype=a.out_dtype
        )
    return point(
        "{0} * {1} > {2} ? {0} : log1pf(expf({0} * {1})) / {1}",
        a.self_,
        a.beta,
        a.threshold,
        dtype=a.out_dtype,
    )


@handles("hardtanh")
def hardtanh(a: Arguments) -> Value:
    return bounded(a.self_, a.min_val, a.max_val, a.out_dtype)


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


@handles("hardshrink")
def hardshrink(a: Arguments) -> Value:
    return point("fabsf({0}) > {1} ? {0} : 0.0f", a.self_, a.lambd, dtype=a.out_dtype)


@handles("softshrink")
def softshrink(a: Arguments) -> Value:
    return point(
        "{0} > {1} ? {0} - {1} : ({0} < -{1} ? {0} + {1} : 0.0f)", a.self_, a.lambd, dtype=a.out_dtype
    )


@handles("threshold")
def threshold(a: Arguments) -> Value:
    return point("{0} > {1} ? {0} : {2}", a.self_, a.threshold, a.value, dtype=a.out_dtype)


@handles("prelu", "_prelu_kernel")
def prelu(a: Arguments) -> Value:
    from dice_training.cuke.traced.lower import reshape

    weight = a.weight
    if len(weight.shape) == 1:
        sizes = [1] * len(a.self_.shape)
        if len(sizes) > 1:
            sizes[1] = weight.shape[0].value
        elif weight.shape[0].value > 1:
            sizes[0] = weight.shape[0].value
        weight = reshape(weight, sizes or [])
    return point("{0} > 0.0f ? {0} : {0} * {1}", a.self_, weight, dtype=a.out_dtype)


@handles("rrelu")
def rrelu(a: Arguments) -> Value:
    return point("{0} > 0.0f ? {0} : {0} * {1}", a.self_, (a.lower + a.upper) / 2, dtype=a.out_dtype)


@handles("glu")
def glu(a: Arguments) -> Value:
    from dice_training.cuke.traced.movement import narrow

    dim = a.dim % len(a.self_.shape)
    half = a.self_.shape[dim].value // 2
    return point(
        "{0} / (1.0f + expf(-{1}))",
        narrow(a.self_, dim, 0, half),
        narrow(a.self_, dim, half, half),
        dtype=a.out_dtype,
    )


# -- arithmetic


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


# -- comparisons and logic


def _dtype_of(*values: Any) -> torch.dtype:
    """The type in which values and numbers meet."""
    made = [torch.empty([1] * len(v.shape), dtype=v.dtype) if isinstance(v, Value) else v for v in values]
    result = made[0].dtype if isinstance(made[0], torch.Tensor) else torch.result_type(made[0], made[-1])
    for other in made[1:]:
        result = torch.result_type(
            torch.empty(() if not isinstance(made[0], torch.Tensor) else made[0].shape, dtype=result), other
        )
    return result


def _compare(sign: str) -> Any:
    return lambda a: point(
        f"{{0}} {sign} {{1}}", a.self_, a.other, dtype=torch.bool, like=_dtype_of(a.self_, a.other)
    )


for _names, _sign in (("gt greater", ">"), ("lt less", "<"), ("ge greater_equal", ">="), ("le less_equal", "<="), ("eq", "=="), ("ne not_equal", "!=")):  # fmt: skip
    handles(*_names.split())(_compare(_sign))


def _logic(template: str) -> Any:
    return lambda a: point(template, a.self_, a.other, dtype=torch.bool)


for _name, _template in {
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_xor": "{0} != {1}",
}.items():
    handles(_name)(_logic(_template))


@handles("logical_not")
def logical_not(a: Arguments) -> Value:
    return point("!{0}", a.self_, dtype=torch.bool)


@handles("bitwise_not")
def bitwise_not(a: Arguments) -> Value:
    return point("!{0}" if a.out_dtype == torch.bool else "~{0}", a.self_, dtype=a.out_dtype)


def _bits(integers: str, booleans: str) -> Any:
    return lambda a: point(
        booleans if a.out_dtype == torch.bool else integers, a.self_, a.other, dtype=a.out_dtype
    )


for _names, _integers, _booleans in (("bitwise_and __and__", "{0} & {1}", "{0} && {1}"), ("bitwise_or __or__", "{0} | {1}", "{0} || {1}"),
                                     ("bitwise_xor __xor__", "{0} ^ {1}", "{0} != {1}"), ("bitwise_left_shift __lshift__", "{0} << {1}", ""),
                                     ("bitwise_right_shift __rshift__", "{0} >> {1}", "")):  # fmt: skip
    handles(*_names.split())(_bits(_integers, _booleans))

_TESTS = {"isnan": "isnan({0})", "isinf": "isinf({0})", "isfinite": "isfinite({0})", "isneginf": "{0} == -INFINITY", "isposinf": "{0} == INFINITY",
          "signbit": "signbit({0})"}  # fmt: skip


def _test(template: str, of_integers: bool) -> Any:
    def handler(a: Arguments) -> Value:
        if not a.self_.dtype.is_floating_point:
            return number(of_integers, torch.bool, a.self_.shape)
        return point(template, a.self_, dtype=torch.bool, like=a.self_.dtype)

    return handler


for _name, _template in _TESTS.items():
    handles(_name)(_test(_template, _name == "isfinite"))


@handles("isclose")
def isclose(a: Arguments) -> Value:
    return point(
        "fabsf({0} - {1}) <= {2} + {3} * fabsf({1})",
        a.self_,
        a.other,
        a.atol,
        a.rtol,
        dtype=torch.bool,
        like=a.self_.dtype,
    )


@handles("where")
def where(a: Arguments) -> Value:
    if not hasattr(a, "other"):
        raise Unwritten("operator nonzero")
    condition = cast(a.condition, torch.bool)
    chosen = [
        cast(v, a.out_dtype) if isinstance(v, Value) else number(v, a.out_dtype) for v in (a.self_, a.other)
    ]
    return _choose(condition, *chosen)


def _choose(condition: Value, yes: Value, no: Value) -> Value:
    from dice_training.cuke.traced.values import Point

    shape = common_shape([condition.shape, yes.shape, no.shape])
    args = tuple(expand(v, shape) for v in (condition, yes, no))
    return Point(shape=shape, dtype=yes.dtype, template="{0} ? {1} : {2}", args=args, name="where")


@handles("masked_fill")
def masked_fill(a: Arguments) -> Value:
    fill = cast(a.value, a.out_dtype) if isinstance(a.value, Value) else number(a.value, a.out_dtype)
    return _choose(a.mask, fill, a.self_)


# -- types and copies


@handles("to", "_to_copy", "type_as")
def to(a: Arguments) -> Value:
    return cast(a.self_, a.out_dtype)


@handles("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "lift_fresh", "dropout", "feature_dropout", "alpha_dropout",
         "native_dropout", "detach_copy", "positive", "resolve_conj", "resolve_neg", "conj", "real", "_conj")  # fmt: skip
def same(a: Arguments) -> Value:
    require(not getattr(a, "train", False), "dropout in training")
    return a.self_ if hasattr(a, "self_") else a.input


@handles("copy")
def copy(a: Arguments) -> Value:
    return expand(cast(a.src, a.out_dtype), a.self_.shape)


# -- tensors of numbers


def _like(fill: float | None) -> Any:
    def handler(a: Arguments) -> Value:
        from dice_training.cuke.traced.values import constant

        value = (
            fill if fill is not None else getattr(a, "fill_value", getattr(a, "value", getattr(a, "s", None)))
        )
        require(isinstance(value, int | float), "a fill that is computed")
        source = getattr(a, "self_", None)
        shape = source.shape if isinstance(source, Value) and len(source.shape) == len(a.out_shape) else ()
        if tuple(d.value for d in shape) != a.out_shape:
            shape = tuple(constant(size) for size in a.out_shape)
        return number(value, a.out_dtype, shape)  # type: ignore[arg-type]

    return handler


handles("zeros_like", "zeros", "new_zeros", "zero")(_like(0.0))
handles("ones_like", "ones", "new_ones")(_like(1.0))
handles("full_like", "full", "new_full", "scalar_tensor", "fill")(_like(None))


@handles("arange")
def arange(a: Arguments) -> Value:
    from dice_training.cuke.traced.values import constant

    start, step = getattr(a, "start", 0) or 0, getattr(a, "step", 1) or 1
    size = (constant(a.out_shape[0]),)
    kind = "" if not a.out_dtype.is_floating_point else "(float)"

    def write(e: Any, index: Any) -> str:
        text = f"{kind}{index.coord(0)}"
        if step != 1:
            text += f" * {number(step, a.out_dtype).text}"
        return text if start == 0 else f"{text} + {number(start, a.out_dtype).text}"

    return Written(shape=size, dtype=a.out_dtype, args=(), write=write)


@handles("linspace")
def linspace(a: Arguments) -> Value:
    from dice_training.cuke.traced.values import constant

    step = (a.end - a.start) / max(1, a.steps - 1)

    def write(e: Any, index: Any) -> str:
        return f"{number(a.start, a.out_dtype).text} + {index.coord(0)} * {number(step, a.out_dtype).text}"

    return Written(shape=(constant(a.steps),), dtype=a.out_dtype, args=(), write=write)


@handles("eye")
def eye(a: Arguments) -> Value:
    from dice_training.cuke.traced.values import constant

    shape = tuple(constant(size) for size in a.out_shape)
    one, zero = number(1, a.out_dtype).text, number(0, a.out_dtype).text
    return Written(
        shape=shape,
        dtype=a.out_dtype,
        args=(),
        write=lambda e, i: f"{i.coord(0)} == {i.coord(1)} ? {one} : {zero}",
    )
