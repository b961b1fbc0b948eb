"""Numbers and expressions as C++ writes them in a type."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from dice_training.cuke.traced.values import Unwritten

_FLOAT_CALL = re.compile(
    r"\b(fabs|fmax|fmin|exp|expm1|exp2|log|log1p|log2|log10|sqrt|rsqrt|sin|cos|tan|asin|acos|atan|sinh|cosh|tanh|asinh"
    r"|acosh|atanh|atan2|erf|erfc|erfinv|floor|ceil|rint|trunc|fmod|pow|fma|copysign|lgamma|hypot|nextafter|ldexp)f\("
)


def expression(template: str, texts: Sequence[str], dtype: torch.dtype) -> str:
    """``template`` with its arguments; float functions and literals become double where the arguments are."""
    if dtype == torch.float64:
        template = _FLOAT_CALL.sub(r"\1(", template)
        template = re.sub(r"(\d)f\b", r"\1", template)
    return template.format(*texts)


def literal(number: float | bool, dtype: torch.dtype) -> str:
    """``0.5f``, ``1e-5f``, ``3``, ``true``, ``INFINITY``."""
    if dtype == torch.bool:
        return "true" if number else "false"
    if not dtype.is_floating_point:
        if number != number or number in (float("inf"), float("-inf")):
            raise Unwritten("an integer that is not finite")
        return str(int(number))
    number = float(number)
    if number != number:
        return "NAN"
    if number in (float("inf"), float("-inf")):
        return "INFINITY" if number > 0 else "-INFINITY"
    text = repr(number).replace("e-0", "e-")
    return text if dtype == torch.float64 else text + "f"
