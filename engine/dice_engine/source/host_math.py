"""The mathematics that host code calls: ``std::min``, ``sqrtf``, ``numeric_limits``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_names import NUMBERS
from dice_engine.source.host_tree import Node
from dice_engine.source.host_values import (
    Num,
    Scope,
)

_MATH: dict[str, Callable[..., Any]] = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2, "log10": math.log10, "pow": math.pow,
    "ceil": math.ceil, "floor": math.floor, "fabs": abs, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "exp2": lambda x: 2.0**x, "fmax": max, "fmin": min, "fmod": math.fmod,
    "round": lambda x: math.floor(abs(x) + 0.5) * math.copysign(1, x),
    "rsqrt": lambda x: 1 / math.sqrt(x), "trunc": math.trunc, "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
}  # fmt: skip


def call(
    machine: Machine, name: str, template: tuple[str, ...], args: list[Any], scope: Scope, node: Node
) -> Num | None:
    """The value of a mathematical function, or None when ``name`` is none."""
    plain = name.removeprefix("std::")
    short = name.rsplit("::", 1)[-1]
    numbers = bool(args) and all(isinstance(a, Num) for a in args)
    if plain in ("min", "max") and (numbers or (len(args) == 1 and isinstance(args[0], list))):
        return _extreme(machine, plain, template, args, node)
    if plain == "abs" and numbers:
        return Num(abs(args[0].value), types.promoted(args[0].kind))
    if "numeric_limits<" in name:
        return _limits(machine, name, short, scope, node)
    root = plain[:-1] if plain.endswith("f") and plain[:-1] in _MATH else plain
    if root in _MATH and numbers:
        return _math(machine, root, plain, args, node)
    if short in ("ceil_div", "ATenCeilDiv") and numbers and len(args) == 2:
        raised = types.binary("-", types.binary("+", args[0], args[1]), Num(1, "int32"))
        return types.binary("/", raised, args[1])
    return None


def _extreme(machine: Machine, name: str, template: tuple[str, ...], args: list[Any], node: Node) -> Any:
    values = args[0] if len(args) == 1 and isinstance(args[0], list) else args
    if not values or not all(isinstance(v, Num) for v in values):
        raise machine.unsupported(f"std::{name} of these values", node)
    kind = types.KINDS.get(template[0]) if template else None
    if kind is None:
        kind = values[0].kind
        for other in values[1:]:
            kind = kind if kind == other.kind else types.common(kind, other.kind)
    converted = [types.convert(v, kind) for v in values]
    return (min if name == "min" else max)(converted, key=lambda v: v.value)


def _math(machine: Machine, root: str, name: str, args: list[Num], node: Node) -> Num:
    single = (name.endswith("f") and root != name) or all(a.kind == "float32" for a in args)
    try:
        value = float(_MATH[root](*(float(a.value) for a in args)))
    except (ValueError, OverflowError, ZeroDivisionError, TypeError):
        raise machine.unsupported(f"{name} has no finite value here", node) from None
    return types.convert(Num(value, "float64"), "float32" if single else "float64")


def _limits(machine: Machine, name: str, short: str, scope: Scope, node: Node) -> Num:
    match = re.search(r"numeric_limits<(.+)>", name)
    kind = types.KINDS.get(machine.type_of(match.group(1), scope).base) if match else None
    if kind == "float32":
        top = NUMBERS["FLT_MAX"].value
        values = {
            "infinity": math.inf,
            "max": top,
            "lowest": -top,
            "min": 2.0**-126,
            "epsilon": 2.0**-23,
            "quiet_NaN": math.nan,
        }
        if short in values:
            return Num(values[short], kind)
    elif kind == "float64":
        top = NUMBERS["DBL_MAX"].value
        values = {"infinity": math.inf, "max": top, "lowest": -top, "min": 2.0**-1022, "epsilon": 2.0**-52}
        if short in values:
            return Num(values[short], kind)
    elif kind is not None and not types.is_float(kind) and short in ("max", "min", "lowest"):
        bits = types.SIZES[kind] * 8
        unsigned = kind.startswith("u")
        return Num(
            2 ** (bits - (not unsigned)) - 1 if short == "max" else (0 if unsigned else -(2 ** (bits - 1))),
            kind,
        )
    raise machine.unsupported(f"{name}()", node)
