"""The pointwise operators the teacher knows, each in PyTorch, in tidy CUDA, in hasty CUDA and in numpy.

Template fields: ``{x}`` the PyTorch value, ``{v}`` the CUDA value (always a plain variable), ``{a}`` ``{b}`` scalar
arguments, ``{y}`` ``{z}`` further tensor operands. The last line of a multi-line PyTorch template is its value.
"""

# ruff: noqa: E501
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Op:
    name: str
    torch: tuple[str, ...]
    cuda: str
    hasty: tuple[str, ...]
    """How the same thing is written in a hurry: double math, ``powf``, divisions."""
    numpy: Callable[..., Array]
    """``f(x, a, b, y, z)``; arguments the operator does not take are passed as None."""
    modules: tuple[str, ...] = ()
    """Constructors of stateless ``nn`` modules that compute the same."""
    args: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...] = ()
    """For each scalar argument: names a user may give it, and values."""
    operands: int = 0
    keeps_exact: bool = False
    """Maps bitwise equal values to bitwise equal values in any precision (no rounding)."""
    jumps: bool = False
    """Discontinuous: only sensible on values that no rounding has touched."""
    weight: float = 1.0


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: Array) -> Array:
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1.0 - poly * np.exp(-x * x))


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0.0)


ALPHA = ("alpha", "slope", "coef")
SCALE = ("scale", "factor", "alpha", "scaling_factor", "multiplier", "gain")
SHIFT = ("offset", "shift", "bias_value", "beta", "add_value", "constant")
BOUND = ("min_val", "min_value", "lower", "lo"), ("max_val", "max_value", "upper", "hi")
CUT = ("threshold", "cutoff", "limit", "thresh")
LAMBDA = ("lambd", "lambda_val", "shrink")
SCALES = (0.5, 2.0, 0.1, 1.5, 3.0, 0.25, 0.7, 1.2, 0.125, 4.0, -1.0, 2.5, -0.5)
SHIFTS = (1.0, 0.5, -1.0, 2.0, 0.1, 3.0, -0.5, 0.25, 1.5, -2.0)
DIVISORS = (2.0, 3.0, 4.0, 10.0, 1.5, 0.5, 5.0, 8.0, 6.0)

# fmt: off
_UNARY = [
    Op("relu", ("torch.relu({x})", "F.relu({x})", "{x}.relu()", "torch.clamp({x}, min=0)", "F.relu({x}, inplace=False)"),
       "fmaxf({v}, 0.0f)", ("{v} > 0 ? {v} : 0", "{v} < 0.0f ? 0.0f : {v}", "fmax({v}, 0.0f)", "max({v}, 0.0f)"),
       lambda x, a, b, y, z: np.maximum(x, 0.0), ("nn.ReLU()",), keeps_exact=True, weight=2.5),
    Op("relu6", ("F.relu6({x})", "torch.clamp({x}, 0.0, 6.0)"), "fminf(fmaxf({v}, 0.0f), 6.0f)",
       ("{v} < 0 ? 0 : ({v} > 6 ? 6 : {v})", "min(max({v}, 0.0f), 6.0f)"),
       lambda x, a, b, y, z: np.clip(x, 0.0, 6.0), ("nn.ReLU6()",), keeps_exact=True),
    Op("leaky_relu", ("F.leaky_relu({x}, {a})", "F.leaky_relu({x}, negative_slope={a})",
                      "torch.nn.functional.leaky_relu({x}, {a})"),
       "{v} > 0.0f ? {v} : {v} * {a}", ("{v} >= 0 ? {v} : {a} * {v}", "fmax({v}, 0.0f) + {a} * fmin({v}, 0.0f)"),
       lambda x, a, b, y, z: np.where(x > 0, x, a * x), ("nn.LeakyReLU({a})", "nn.LeakyReLU(negative_slope={a})"),
       (((("negative_slope", *ALPHA)), (0.01, 0.1, 0.2, 0.02, 0.05)),), weight=1.6),
    Op("elu", ("F.elu({x}, alpha={a})", "F.elu({x}, {a})"), "{v} > 0.0f ? {v} : {a} * expm1f({v})",
       ("{v} > 0 ? {v} : {a} * (exp({v}) - 1.0)", "{v} > 0.0f ? {v} : {a} * (expf({v}) - 1.0f)"),
       lambda x, a, b, y, z: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), ("nn.ELU(alpha={a})", "nn.ELU({a})"),
       ((("alpha",), (1.0, 0.5, 1.5, 2.0)),)),
    Op("gelu", ("F.gelu({x})", "torch.nn.functional.gelu({x})"), "0.5f * {v} * (1.0f + erff({v} * 0.70710678f))",
       ("0.5 * {v} * (1.0 + erf({v} / sqrt(2.0)))", "{v} * 0.5f * (1.0f + erff({v} / sqrtf(2.0f)))"),
       lambda x, a, b, y, z: 0.5 * x * (1 + _erf(x * 0.7071067811865476)), ("nn.GELU()",), weight=1.8),
    Op("gelu_tanh", ('F.gelu({x}, approximate="tanh")',
                     "0.5 * {x} * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * ({x} + 0.044715 * torch.pow({x}, 3.0))))"),
       "0.5f * {v} * (1.0f + tanhf(0.79788456f * ({v} + 0.044715f * {v} * {v} * {v})))",
       ("0.5 * {v} * (1.0 + tanh(0.7978845608 * ({v} + 0.044715 * pow({v}, 3))))",
        "0.5f * {v} * (1.0f + tanhf(sqrtf(2.0f / 3.14159265f) * ({v} + 0.044715f * powf({v}, 3.0f))))"),
       lambda x, a, b, y, z: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
       ('nn.GELU(approximate="tanh")',)),
    Op("silu", ("F.silu({x})", "{x} * torch.sigmoid({x})", "torch.sigmoid({x}) * {x}", "torch.nn.functional.silu({x})"),
       "{v} / (1.0f + expf(-{v}))", ("{v} * (1.0 / (1.0 + exp(-{v})))", "{v} / (1.0 + exp(-{v}))"),
       lambda x, a, b, y, z: x * _sigmoid(x), ("nn.SiLU()",), weight=1.8),
    Op("mish", ("F.mish({x})", "{x} * torch.tanh(F.softplus({x}))"), "{v} * tanhf(log1pf(expf({v})))",
       ("{v} * tanh(log(1.0 + exp({v})))", "{v} * tanhf(logf(1.0f + expf({v})))"),
       lambda x, a, b, y, z: x * np.tanh(_softplus(x)), ("nn.Mish()",), weight=1.3),
    Op("softplus", ("F.softplus({x})", "torch.nn.functional.softplus({x})"),
       "{v} > 20.0f ? {v} : log1pf(expf({v}))", ("{v} > 20.0f ? {v} : log(1.0 + exp({v}))", "{v} > 20 ? {v} : log1p(exp({v}))"),
       lambda x, a, b, y, z: _softplus(x), ("nn.Softplus()",), weight=1.3),
    Op("hardswish", ("F.hardswish({x})", "{x} * F.relu6({x} + 3.0) / 6.0"),
       "{v} * fminf(fmaxf({v} + 3.0f, 0.0f), 6.0f) * 0.16666667f",
       ("{v} * fmin(fmax({v} + 3.0, 0.0), 6.0) / 6.0", "{v} * fminf(fmaxf({v} + 3.0f, 0.0f), 6.0f) / 6.0f"),
       lambda x, a, b, y, z: x * np.clip(x + 3, 0, 6) / 6, ("nn.Hardswish()",)),
    Op("hardsigmoid", ("F.hardsigmoid({x})", "torch.clamp(({x} + 3.0) / 6.0, 0.0, 1.0)"),
       "fminf(fmaxf({v} * 0.16666667f + 0.5f, 0.0f), 1.0f)",
       ("fmin(fmax({v} / 6.0 + 0.5, 0.0), 1.0)", "fminf(fmaxf(({v} + 3.0f) / 6.0f, 0.0f), 1.0f)"),
       lambda x, a, b, y, z: np.clip(x / 6 + 0.5, 0, 1), ("nn.Hardsigmoid()",)),
    Op("clamp", ("torch.clamp({x}, {a}, {b})", "torch.clamp({x}, min={a}, max={b})", "{x}.clamp({a}, {b})",
                 "F.hardtanh({x}, {a}, {b})", "torch.clip({x}, {a}, {b})"),
       "fminf(fmaxf({v}, {a}), {b})", ("{v} < {a} ? {a} : ({v} > {b} ? {b} : {v})", "fmax(fmin({v}, {b}), {a})"),
       lambda x, a, b, y, z: np.clip(x, a, b), ("nn.Hardtanh({a}, {b})", "nn.Hardtanh(min_val={a}, max_val={b})"),
       ((BOUND[0], (-1.0, -2.0, -0.5, 0.0, -3.0)), (BOUND[1], (1.0, 2.0, 0.5, 3.0, 1.5))), weight=1.6, keeps_exact=True),
    Op("clamp_min", ("torch.clamp({x}, min={a})", "{x}.clamp(min={a})", "torch.clamp_min({x}, {a})"),
       "fmaxf({v}, {a})", ("{v} > {a} ? {v} : {a}", "fmax({v}, {a})"), lambda x, a, b, y, z: np.maximum(x, a),
       args=((BOUND[0], (-1.0, -0.5, 0.25, 0.5, -0.25)),), keeps_exact=True),
    Op("clamp_max", ("torch.clamp({x}, max={a})", "{x}.clamp(max={a})", "torch.clamp_max({x}, {a})"),
       "fminf({v}, {a})", ("{v} < {a} ? {v} : {a}", "fmin({v}, {a})"), lambda x, a, b, y, z: np.minimum(x, a),
       args=((BOUND[1], (1.0, 0.5, 0.75, 1.5, 0.25)),), keeps_exact=True),
    Op("sigmoid", ("torch.sigmoid({x})", "F.sigmoid({x})", "{x}.sigmoid()", "1 / (1 + torch.exp(-{x}))"),
       "1.0f / (1.0f + expf(-{v}))", ("1.0 / (1.0 + exp(-{v}))", "1 / (1 + exp(-{v}))"),
       lambda x, a, b, y, z: _sigmoid(x), ("nn.Sigmoid()",), weight=2.5),
    Op("tanh", ("torch.tanh({x})", "F.tanh({x})", "{x}.tanh()"), "tanhf({v})",
       ("tanh({v})", "2.0 / (1.0 + exp(-2.0 * {v})) - 1.0"), lambda x, a, b, y, z: np.tanh(x),
       ("nn.Tanh()",), weight=2.2),
    Op("exp", ("torch.exp({x})", "{x}.exp()"), "expf({v})", ("exp({v})",), lambda x, a, b, y, z: np.exp(x), weight=1.2),
    Op("expm1", ("torch.expm1({x})", "torch.special.expm1({x})"), "expm1f({v})", ("exp({v}) - 1.0", "expm1({v})"),
       lambda x, a, b, y, z: np.expm1(x), weight=0.5),
    Op("exp2", ("torch.exp2({x})", "torch.pow(2.0, {x})"), "exp2f({v})", ("pow(2.0, (double){v})", "exp2({v})"),
       lambda x, a, b, y, z: np.exp2(x), weight=0.5),
    Op("log1p_abs", ("torch.log1p(torch.abs({x}))", "torch.log1p({x}.abs())", "torch.log(1 + torch.abs({x}))"),
       "log1pf(fabsf({v}))", ("log(1.0 + fabs({v}))", "logf(1.0f + fabsf({v}))"),
       lambda x, a, b, y, z: np.log1p(np.abs(x))),
    Op("log_clamp", ("torch.log(torch.clamp({x}, min={a}))", "torch.clamp({x}, min={a}).log()"),
       "logf(fmaxf({v}, {a}))", ("log(fmax({v}, {a}))", "log({v} > {a} ? {v} : {a})"),
       lambda x, a, b, y, z: np.log(np.maximum(x, a)), args=((("eps", "min_val", "min_clip"), (0.1, 0.05, 0.5, 0.01)),)),
    Op("log", ("torch.log({x})", "{x}.log()"), "logf({v})", ("log({v})",), lambda x, a, b, y, z: np.log(x), jumps=True),
    Op("log1p", ("torch.log1p({x})", "torch.log(1 + {x})"), "log1pf({v})", ("log(1.0 + {v})", "log1p({v})"), lambda x, a, b, y, z: np.log1p(x), jumps=True),
    Op("log2", ("torch.log2({x})", "{x}.log2()"), "log2f({v})", ("log2({v})",), lambda x, a, b, y, z: np.log2(x), jumps=True, weight=0.7),
    Op("log10", ("torch.log10({x})", "{x}.log10()"), "log10f({v})", ("log10({v})",), lambda x, a, b, y, z: np.log10(x), jumps=True, weight=0.5),
    Op("sqrt", ("torch.sqrt({x})", "{x}.sqrt()"), "sqrtf({v})", ("sqrt({v})", "powf({v}, 0.5f)"), lambda x, a, b, y, z: np.sqrt(x), jumps=True),
    Op("acos", ("torch.acos({x})", "torch.arccos({x})"), "acosf({v})", ("acos({v})",), lambda x, a, b, y, z: np.arccos(x), jumps=True, weight=0.6),
    Op("asin", ("torch.asin({x})", "torch.arcsin({x})"), "asinf({v})", ("asin({v})",), lambda x, a, b, y, z: np.arcsin(x), jumps=True, weight=0.5),
    Op("tan", ("torch.tan({x})",), "tanf({v})", ("tan({v})", "sin({v}) / cos({v})"), lambda x, a, b, y, z: np.tan(x), jumps=True, weight=0.5),
    Op("sinc", ("torch.sinc({x})",), "{v} == 0.0f ? 1.0f : sinf(3.14159265f * {v}) / (3.14159265f * {v})",
       ("{v} == 0 ? 1.0 : sin(3.141592653589793 * {v}) / (3.141592653589793 * {v})",), lambda x, a, b, y, z: np.sinc(x), jumps=True, weight=0.5),
    Op("deg2rad", ("torch.deg2rad({x})",), "{v} * 0.01745329f", ("{v} * 3.141592653589793 / 180.0",), lambda x, a, b, y, z: np.deg2rad(x), weight=0.4),
    Op("fmod", ("torch.fmod({x}, {a})",), "fmodf({v}, {a})", ("fmod({v}, {a})",), lambda x, a, b, y, z: np.fmod(x, a),
       args=((("divisor", "period", "modulus"), (0.5, 1.0, 2.0, 1.5)),), jumps=True, weight=0.5),
    Op("remainder", ("torch.remainder({x}, {a})", "{x} % {a}"), "{v} - {a} * floorf({v} / {a})", ("{v} - {a} * floor({v} / {a})",), lambda x, a, b, y, z: np.mod(x, a),
       args=((("divisor", "period", "modulus"), (0.5, 1.0, 2.0)),), jumps=True, weight=0.5),
    Op("gt", ("({x} > {a}).float()", "torch.gt({x}, {a}).float()"), "{v} > {a} ? 1.0f : 0.0f", ("(float)({v} > {a})", "{v} > {a} ? 1 : 0"),
       lambda x, a, b, y, z: (x > a) * 1.0, args=((CUT, (0.0, 0.5, 0.25, -0.5)),), keeps_exact=True, jumps=True, weight=0.6),
    Op("lt", ("({x} < {a}).float()", "torch.lt({x}, {a}).float()"), "{v} < {a} ? 1.0f : 0.0f", ("(float)({v} < {a})", "{v} < {a} ? 1 : 0"),
       lambda x, a, b, y, z: (x < a) * 1.0, args=((CUT, (0.0, 0.5, 0.25, -0.5)),), keeps_exact=True, jumps=True, weight=0.5),
    Op("sqrt_abs", ("torch.sqrt(torch.abs({x}))", "{x}.abs().sqrt()"), "sqrtf(fabsf({v}))",
       ("sqrt(fabs({v}))", "powf(fabsf({v}), 0.5f)"), lambda x, a, b, y, z: np.sqrt(np.abs(x)), jumps=True),
    Op("rsqrt_abs", ("torch.rsqrt(torch.abs({x}) + {a})", "1.0 / torch.sqrt(torch.abs({x}) + {a})"),
       "rsqrtf(fabsf({v}) + {a})", ("1.0 / sqrt(fabs({v}) + {a})", "powf(fabsf({v}) + {a}, -0.5f)"),
       lambda x, a, b, y, z: 1 / np.sqrt(np.abs(x) + a), args=((("eps", "offset"), (1.0, 0.5, 0.1, 2.0)),)),
    Op("recip_abs", ("1.0 / (torch.abs({x}) + {a})", "torch.reciprocal(torch.abs({x}) + {a})", "({x}.abs() + {a}).reciprocal()"),
       "1.0f / (fabsf({v}) + {a})", ("1.0 / (fabs({v}) + {a})", "powf(fabsf({v}) + {a}, -1.0f)"),
       lambda x, a, b, y, z: 1 / (np.abs(x) + a), args=((("eps", "offset", "damping"), (1.0, 0.5, 2.0, 1.5)),)),
    Op("square", ("torch.square({x})", "{x}.pow(2)", "{x} ** 2", "{x} * {x}", "torch.pow({x}, 2)"), "{v} * {v}",
       ("pow({v}, 2)", "powf({v}, 2.0f)", "pow((double){v}, 2.0)"), lambda x, a, b, y, z: x * x, weight=1.5),
    Op("cube", ("torch.pow({x}, 3)", "{x} ** 3", "{x} * {x} * {x}", "{x}.pow(3)"), "{v} * {v} * {v}",
       ("pow({v}, 3)", "powf({v}, 3.0f)", "pow((double){v}, 3.0)"), lambda x, a, b, y, z: x**3, weight=0.8),
    Op("pow4", ("torch.pow({x}, 4)", "{x} ** 4", "{x}.pow(4)"), "({v} * {v}) * ({v} * {v})",
       ("pow({v}, 4)", "powf({v}, 4.0f)", "{v} * {v} * {v} * {v}"), lambda x, a, b, y, z: x**4, weight=0.4),
    Op("abs", ("torch.abs({x})", "{x}.abs()"), "fabsf({v})", ("fabs({v})", "{v} < 0 ? -{v} : {v}"),
       lambda x, a, b, y, z: np.abs(x), keeps_exact=True, weight=1.5),
    Op("neg", ("torch.neg({x})", "-{x}"), "-{v}", ("-1.0 * {v}", "0.0f - {v}"), lambda x, a, b, y, z: -x, keeps_exact=True),
    Op("sin", ("torch.sin({x})", "{x}.sin()"), "sinf({v})", ("sin({v})",), lambda x, a, b, y, z: np.sin(x)),
    Op("cos", ("torch.cos({x})", "{x}.cos()"), "cosf({v})", ("cos({v})",), lambda x, a, b, y, z: np.cos(x)),
    Op("atan", ("torch.atan({x})", "torch.arctan({x})"), "atanf({v})", ("atan({v})",), lambda x, a, b, y, z: np.arctan(x), weight=0.7),
    Op("asinh", ("torch.asinh({x})", "torch.arcsinh({x})"), "asinhf({v})", ("asinh({v})",),
       lambda x, a, b, y, z: np.arcsinh(x), weight=0.5),
    Op("sinh", ("torch.sinh({x})",), "sinhf({v})", ("sinh({v})",),
       lambda x, a, b, y, z: np.sinh(x), weight=0.4),
    Op("cosh", ("torch.cosh({x})",), "coshf({v})", ("cosh({v})",),
       lambda x, a, b, y, z: np.cosh(x), weight=0.4),
    Op("erf", ("torch.erf({x})", "torch.special.erf({x})"), "erff({v})", ("erf({v})",), lambda x, a, b, y, z: _erf(x), weight=0.7),
    Op("sign", ("torch.sign({x})", "{x}.sign()"), "(float)(({v} > 0.0f) - ({v} < 0.0f))",
       ("{v} > 0 ? 1.0f : ({v} < 0 ? -1.0f : 0.0f)",), lambda x, a, b, y, z: np.sign(x), keeps_exact=True, jumps=True),
    Op("floor", ("torch.floor({x})", "{x}.floor()"), "floorf({v})", ("floor({v})",), lambda x, a, b, y, z: np.floor(x),
       keeps_exact=True, jumps=True),
    Op("ceil", ("torch.ceil({x})", "{x}.ceil()"), "ceilf({v})", ("ceil({v})",), lambda x, a, b, y, z: np.ceil(x),
       keeps_exact=True, jumps=True, weight=0.6),
    Op("round", ("torch.round({x})", "{x}.round()"), "rintf({v})", ("rint({v})", "nearbyintf({v})"),
       lambda x, a, b, y, z: np.rint(x), keeps_exact=True, jumps=True, weight=0.6),
    Op("trunc", ("torch.trunc({x})", "torch.fix({x})"), "truncf({v})", ("trunc({v})",), lambda x, a, b, y, z: np.trunc(x),
       keeps_exact=True, jumps=True, weight=0.4),
    Op("frac", ("{x} - torch.floor({x})",), "{v} - floorf({v})", ("{v} - floor({v})",), lambda x, a, b, y, z: x - np.floor(x),
       jumps=True, weight=0.3),
    Op("logsigmoid", ("F.logsigmoid({x})", "torch.nn.functional.logsigmoid({x})"),
       "fminf({v}, 0.0f) - log1pf(expf(-fabsf({v})))", ("fmin({v}, 0.0f) - log(1.0 + exp(-fabs({v})))", "-(log1p(exp(-fabs({v}))) - fmin({v}, 0.0f))"),
       lambda x, a, b, y, z: -_softplus(-x), ("nn.LogSigmoid()",)),
    Op("selu", ("F.selu({x})", "torch.selu({x})"), "1.05070099f * ({v} > 0.0f ? {v} : 1.67326324f * expm1f({v}))",
       ("1.0507009873554805 * ({v} > 0 ? {v} : 1.6732632423543772 * (exp({v}) - 1.0))",),
       lambda x, a, b, y, z: 1.05070099 * np.where(x > 0, x, 1.67326324 * np.expm1(np.minimum(x, 0))), ("nn.SELU()",)),
    Op("celu", ("F.celu({x}, alpha={a})", "F.celu({x}, {a})"), "fmaxf({v}, 0.0f) + fminf({a} * expm1f({v} / {a}), 0.0f)",
       ("{v} > 0 ? {v} : {a} * (exp({v} / {a}) - 1.0)",),
       lambda x, a, b, y, z: np.maximum(x, 0) + np.minimum(0, a * np.expm1(np.minimum(x, 0) / a)), ("nn.CELU(alpha={a})", "nn.CELU({a})"),
       ((("alpha",), (1.0, 0.5, 1.5, 2.0)),)),
    Op("softsign", ("F.softsign({x})", "{x} / (1 + torch.abs({x}))", "{x} / (1.0 + {x}.abs())"), "{v} / (1.0f + fabsf({v}))",
       ("{v} / (1.0 + fabs({v}))",), lambda x, a, b, y, z: x / (1 + np.abs(x)), ("nn.Softsign()",)),
    Op("tanhshrink", ("F.tanhshrink({x})", "{x} - torch.tanh({x})"), "{v} - tanhf({v})", ("{v} - tanh({v})",),
       lambda x, a, b, y, z: x - np.tanh(x), ("nn.Tanhshrink()",), weight=0.7),
    Op("hardshrink", ("F.hardshrink({x}, {a})", "F.hardshrink({x}, lambd={a})"), "fabsf({v}) > {a} ? {v} : 0.0f",
       ("({v} > {a} || {v} < -{a}) ? {v} : 0",), lambda x, a, b, y, z: np.where(np.abs(x) > a, x, 0.0),
       ("nn.Hardshrink({a})", "nn.Hardshrink(lambd={a})"), ((LAMBDA, (0.5, 0.25, 0.75, 1.0)),), keeps_exact=True, jumps=True),
    Op("softshrink", ("F.softshrink({x}, {a})", "F.softshrink({x}, lambd={a})"),
       "{v} > {a} ? {v} - {a} : ({v} < -{a} ? {v} + {a} : 0.0f)", ("{v} > {a} ? {v} - {a} : {v} < -{a} ? {v} + {a} : 0",),
       lambda x, a, b, y, z: np.sign(x) * np.maximum(np.abs(x) - a, 0), ("nn.Softshrink({a})", "nn.Softshrink(lambd={a})"),
       ((LAMBDA, (0.5, 0.25, 0.75, 1.0)),)),
    Op("threshold", ("F.threshold({x}, {a}, {b})", "torch.threshold({x}, {a}, {b})", "torch.where({x} > {a}, {x}, torch.full_like({x}, {b}))"),
       "{v} > {a} ? {v} : {b}", ("({v} <= {a}) ? {b} : {v}",), lambda x, a, b, y, z: np.where(x > a, x, b), ("nn.Threshold({a}, {b})",),
       ((CUT, (0.1, 0.5, 0.25, -0.5, 0.3)), (("value", "fill_value"), (0.0, 1.0, -1.0, 20.0, 0.5))), jumps=True),
    Op("where_scale", ("torch.where({x} > {a}, {x}, {x} * {b})", "torch.where({x} <= {a}, {x} * {b}, {x})"),
       "{v} > {a} ? {v} : {v} * {b}", ("({v} <= {a}) ? {v} * {b} : {v}",), lambda x, a, b, y, z: np.where(x > a, x, x * b),
       args=((CUT, (0.0, 0.5, 0.2, -0.5)), (SCALE, (0.1, 0.5, 2.0, -1.0, 0.25))), jumps=True),
    Op("masked_fill", ("{x}.masked_fill({x} < {a}, {b})", "torch.masked_fill({x}, {x} < {a}, {b})", "torch.where({x} < {a}, torch.full_like({x}, {b}), {x})"),
       "{v} < {a} ? {b} : {v}", ("({v} >= {a}) ? {v} : {b}",), lambda x, a, b, y, z: np.where(x < a, b, x),
       args=((CUT, (0.0, 0.25, -0.25, 0.4)), (("fill_value", "value"), (0.0, 1.0, -1.0, 2.0, -2.0))), jumps=True, weight=0.7),
    Op("add_scalar", ("{x} + {a}", "torch.add({x}, {a})", "{x}.add({a})"), "{v} + {a}", ("{a} + {v}",), lambda x, a, b, y, z: x + a,
       args=((SHIFT, SHIFTS),), weight=2.2),
    Op("sub_scalar", ("{x} - {a}", "torch.sub({x}, {a})", "{x}.sub({a})"), "{v} - {a}", ("{v} + -1.0f * {a}",), lambda x, a, b, y, z: x - a,
       args=((("subtract_value", *SHIFT), (1.0, 0.5, 2.0, 0.1, 1.5)),), weight=1.6),
    Op("rsub_scalar", ("{a} - {x}", "torch.rsub({x}, {a})"), "{a} - {v}", ("-({v} - {a})",), lambda x, a, b, y, z: a - x,
       args=((SHIFT, (1.0, 0.5, 2.0)),), weight=0.8),
    Op("mul_scalar", ("{x} * {a}", "torch.mul({x}, {a})", "{a} * {x}", "{x}.mul({a})"), "{v} * {a}", ("{a} * {v}",), lambda x, a, b, y, z: x * a,
       args=((SCALE, SCALES),), weight=2.5),
    Op("div_scalar", ("{x} / {a}", "torch.div({x}, {a})", "{x}.div({a})"), "{v} * (1.0f / {a})", ("{v} / {a}", "{v} / (double){a}"),
       lambda x, a, b, y, z: x / a, args=((("divisor", "denom", "temperature", "scale"), DIVISORS),), weight=1.8),
    Op("affine", ("{x} * {a} + {b}", "{a} * {x} + {b}"), "fmaf({v}, {a}, {b})", ("{a} * {v} + {b}", "{b} + {v} * {a}"), lambda x, a, b, y, z: x * a + b,
       args=((SCALE, SCALES), (SHIFT, SHIFTS)), weight=1.2),
]

_BINARY = [
    Op("add", ("{x} + {y}", "torch.add({x}, {y})", "{y} + {x}", "{x}.add({y})"), "{v} + {y}", ("{y} + {v}",), lambda x, a, b, y, z: x + y, operands=1, weight=3.0),
    Op("sub", ("{x} - {y}", "torch.sub({x}, {y})"), "{v} - {y}", ("{v} + -1.0f * {y}",), lambda x, a, b, y, z: x - y, operands=1, weight=2.0),
    Op("rsub", ("{y} - {x}", "torch.sub({y}, {x})"), "{y} - {v}", ("-({v} - {y})",), lambda x, a, b, y, z: y - x, operands=1, weight=0.7),
    Op("mul", ("{x} * {y}", "torch.mul({x}, {y})", "{y} * {x}", "{x}.mul({y})"), "{v} * {y}", ("{y} * {v}",), lambda x, a, b, y, z: x * y, operands=1, weight=3.0),
    Op("div_safe", ("{x} / (torch.abs({y}) + {a})", "torch.div({x}, {y}.abs() + {a})"), "{v} / (fabsf({y}) + {a})",
       ("{v} / (fabs({y}) + {a})", "{v} * (1.0 / (fabs({y}) + {a}))"), lambda x, a, b, y, z: x / (np.abs(y) + a),
       args=((("eps", "offset"), (1.0, 0.5, 2.0)),), operands=1),
    Op("maximum", ("torch.maximum({x}, {y})", "torch.max({x}, {y})", "torch.fmax({x}, {y})"), "fmaxf({v}, {y})",
       ("{v} > {y} ? {v} : {y}", "fmax({v}, {y})"), lambda x, a, b, y, z: np.maximum(x, y), operands=1, weight=1.2),
    Op("minimum", ("torch.minimum({x}, {y})", "torch.min({x}, {y})", "torch.fmin({x}, {y})"), "fminf({v}, {y})",
       ("{v} < {y} ? {v} : {y}", "fmin({v}, {y})"), lambda x, a, b, y, z: np.minimum(x, y), operands=1, weight=1.2),
    Op("lerp", ("torch.lerp({x}, {y}, {a})", "{x} + {a} * ({y} - {x})", "(1.0 - {a}) * {x} + {a} * {y}"), "fmaf({a}, {y} - {v}, {v})",
       ("(1.0f - {a}) * {v} + {a} * {y}", "{v} + {a} * ({y} - {v})"), lambda x, a, b, y, z: x + a * (y - x),
       args=((("weight", "mix", "t", "momentum"), (0.5, 0.25, 0.3, 0.7, 0.1, 0.9)),), operands=1),
    Op("ema", ("{a} * {x} + (1.0 - {a}) * {y}", "torch.lerp({y}, {x}, {a})"), "fmaf({a}, {v} - {y}, {y})",
       ("{a} * {v} + (1.0f - {a}) * {y}", "{y} + {a} * ({v} - {y})"), lambda x, a, b, y, z: a * x + (1 - a) * y,
       args=((("decay", "momentum", "keep", "rho"), (0.9, 0.5, 0.99, 0.7, 0.3)),), operands=1),
    Op("prelu", ("F.prelu({x}, {y})",), "{v} > 0.0f ? {v} : {v} * {y}", ("{v} >= 0 ? {v} : {y} * {v}", "fmax({v}, 0.0f) + {y} * fmin({v}, 0.0f)"),
       lambda x, a, b, y, z: np.where(x > 0, x, 0.25 * x), operands=1, weight=1.0),
    Op("add_scaled", ("torch.add({x}, {y}, alpha={a})", "{x} + {a} * {y}"), "fmaf({a}, {y}, {v})", ("{v} + {a} * {y}",), lambda x, a, b, y, z: x + a * y,
       args=((SCALE, SCALES),), operands=1),
    Op("sqdiff", ("({x} - {y}) ** 2", "torch.square({x} - {y})", "torch.pow({x} - {y}, 2)"), "({v} - {y}) * ({v} - {y})",
       ("pow({v} - {y}, 2)", "powf({v} - {y}, 2.0f)"), lambda x, a, b, y, z: (x - y) ** 2, operands=1, weight=0.9),
    Op("absdiff", ("torch.abs({x} - {y})", "({x} - {y}).abs()"), "fabsf({v} - {y})", ("fabs({v} - {y})", "{v} > {y} ? {v} - {y} : {y} - {v}"),
       lambda x, a, b, y, z: np.abs(x - y), operands=1, weight=0.9),
    Op("gate", ("{x} * torch.sigmoid({y})", "torch.sigmoid({y}) * {x}"), "{v} / (1.0f + expf(-{y}))", ("{v} * (1.0 / (1.0 + exp(-{y})))", "{v} / (1.0 + exp(-{y}))"),
       lambda x, a, b, y, z: x * _sigmoid(y), operands=1),
    Op("fma", ("{x} * {y} + {z}", "torch.addcmul({z}, {x}, {y})", "{z} + {x} * {y}"), "fmaf({v}, {y}, {z})", ("{v} * {y} + {z}", "{z} + {y} * {v}"),
       lambda x, a, b, y, z: x * y + z, operands=2, weight=1.6),
    Op("addcmul", ("torch.addcmul({x}, {y}, {z}, value={a})", "{x} + {a} * {y} * {z}"), "fmaf({a} * {y}, {z}, {v})", ("{v} + {a} * {y} * {z}",),
       lambda x, a, b, y, z: x + a * y * z, args=((("value", "scale"), (0.5, 2.0, 0.1, 1.5)),), operands=2, weight=0.9),
]

# fmt: on

_METHODS = frozenset(re.findall(r"\w+", """
    relu clamp sigmoid tanh exp expm1 exp2 log1p log log2 log10 sqrt acos arccos asin arcsin tan sinc deg2rad fmod
    remainder gt lt rsqrt reciprocal square pow abs neg sin cos atan arctan asinh arcsinh sinh cosh erf sign floor
    ceil round trunc fix clamp_min clamp_max clip add sub mul div maximum minimum fmax fmin lerp addcmul
    """))  # fmt: skip
_CALL = re.compile(r"torch\.(\w+)\(\{x\}(?:, ([^()]*))?\)(.*)")


def _with_methods(op: Op) -> Op:
    """``torch.tanh({x})`` is also written ``{x}.tanh()``."""
    spellings = list(op.torch)
    for template in op.torch:
        found = _CALL.fullmatch(template)
        if found and found[1] in _METHODS and "{x}" not in (found[2] or "") + found[3]:
            method = f"{{x}}.{found[1]}({found[2] or ''}){found[3]}"
            if method not in spellings:
                spellings.append(method)
    return replace(op, torch=tuple(spellings))


OPS: dict[str, Op] = {op.name: _with_methods(op) for op in _UNARY + _BINARY}
