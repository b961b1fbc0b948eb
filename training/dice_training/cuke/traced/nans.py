"""Whether a value may be NaN: PyTorch's maxima, clamps and orders hand NaN on, ``fmaxf`` and ``<`` do not.

A guess from how values are made, as a reader of the code would make it: logarithms, roots and arcs of what may lie
outside of their domain.
"""

from __future__ import annotations

import re

from dice_training.cuke.traced.values import (
    Buffer,
    Constant,
    Moved,
    Point,
    Reduced,
    Size,
    Value,
    Written,
    reachable,
)

_MAKERS = re.compile(r"\b(log|log1p|log2|log10|sqrt|rsqrt|acos|asin|acosh|atanh|fmod|pow|lgamma)f\(")
_ROOTS = re.compile(r"\b(log|log2|log10|log1p|sqrt|rsqrt)f\(")
_POSITIVE = re.compile(
    r"fabsf\(|expf\(\{0\}|exp2f\(|sqrtf\(|1\.0f / \(1\.0f \+ expf"
    r"|\{0\} \* \{0\}$|\(\{0\} - \{1\}\) \* \(\{0\} - \{1\}\)$"
)
_SAFE_NAMES = frozenset(("rstd", "norm", "std", "inv", "lse"))


def may_be_nan(value: Value) -> bool:
    """Whether some element of ``value`` may be NaN."""
    if not value.dtype.is_floating_point:
        return False
    return any(_makes(v) for v in reachable([value], lambda v: v.dtype.is_floating_point))


def _makes(value: Value) -> bool:
    if isinstance(value, Buffer):
        return value.nan
    if isinstance(value, Constant):
        return value.text == "NAN"
    if not isinstance(value, Point) or value.name in _SAFE_NAMES or not value.dtype.is_floating_point:
        return False
    if value.template.startswith("isnan("):
        return False
    found = _MAKERS.search(value.template)
    if found is None or "expf" in value.template:
        return False
    return not (_ROOTS.search(value.template) and value.args and not_negative(value.args[0]))


def not_negative(value: Value) -> bool:
    """Whether no element of ``value`` can be less than zero."""
    if isinstance(value, Constant):
        return not value.text.startswith("-")
    if isinstance(value, Size):
        return True
    if isinstance(value, Moved):
        return not_negative(value.args[0])
    if isinstance(value, Reduced):
        return not_negative(value.arg)
    if isinstance(value, Written):
        return (
            bool(value.args)
            and value.heavy
            and value.name in ("max_pool", "avg_pool")
            and not_negative(value.args[0])
        )
    if not isinstance(value, Point):
        return False
    if _POSITIVE.match(value.template):
        return True
    if value.template in ("{0} + {1}", "{0} * {1}", "{0} / {1}", "{0} * (1.0f / {1})"):
        return all(not_negative(a) for a in value.args)
    if value.template == "fmaxf({0}, 0.0f)":
        return True
    return value.template == "fmaxf({0}, {1})" and not_negative(value.args[1])
