"""Activations with arguments."""

from __future__ import annotations

from dice_training.cuke.traced.arithmetic import bounded
from dice_training.cuke.traced.lower import (
    Arguments,
    handles,
    point,
    reshape,
)
from dice_training.cuke.traced.values import Value
from dice_training.cuke.traced.views import narrow


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
    dim = a.dim % len(a.self_.shape)
    half = a.self_.shape[dim].value // 2
    return point(
        "{0} / (1.0f + expf(-{1}))",
        narrow(a.self_, dim, 0, half),
        narrow(a.self_, dim, half, half),
        dtype=a.out_dtype,
    )
