"""Names in host code: variables, kernels, functions, what headers define, and template arguments."""

from __future__ import annotations

import math
import re
from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_convert import child, text_of
from dice_engine.source.host_lex import (
    tokenize,
)
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import parse_type
from dice_engine.source.host_values import (
    Cell,
    Device,
    Dtype,
    FunctionRef,
    KernelRef,
    Num,
    Opaque,
    Scope,
    Unsupported,
)

NUMBERS = {
    "INT_MAX": Num(2**31 - 1, "int32"),
    "INT_MIN": Num(-(2**31), "int32"),
    "UINT_MAX": Num(2**32 - 1, "uint32"),
    "FLT_MAX": Num(3.4028234663852886e38, "float32"),
    "FLT_MIN": Num(1.1754943508222875e-38, "float32"),
    "FLT_EPSILON": Num(1.1920928955078125e-07, "float32"),
    "DBL_MAX": Num(1.7976931348623157e308, "float64"),
    "INFINITY": Num(math.inf, "float32"),
    "NAN": Num(math.nan, "float32"),
    "M_PI": Num(math.pi, "float64"),
    "M_SQRT1_2": Num(math.sqrt(0.5), "float64"),
    "M_2_SQRTPI": Num(2 / math.sqrt(math.pi), "float64"),
    "cudaSuccess": Num(0, "int32"),
    "NULL": Cell(None),
    "nullptr": Cell(None),
    "c10::nullopt": Cell(None),
    "at::nullopt": Cell(None),
    "std::nullopt": Cell(None),
    "torch::nullopt": Cell(None),
}


def constant(name: str) -> Any:
    """A name that headers define, or None. A ``Cell`` stands for a known null."""
    short = name.rsplit("::", 1)[-1]
    if name in NUMBERS:
        return NUMBERS[name]
    if short in types.TORCH_CONSTANTS and (name == short or name.startswith(("torch::", "at::", "c10::"))):
        return Dtype(types.TORCH_CONSTANTS[short])
    scalar = re.fullmatch(
        r"(?:torch|at|c10)::(?:ScalarType::)?(Float|Double|Half|BFloat16|Int|Long|Short|Byte|Char|Bool)", name
    )
    if scalar and "ScalarType" in name:
        return Dtype(types.TORCH_CONSTANTS[f"k{scalar.group(1)}"])
    if short in ("kCUDA", "kCPU") or name.endswith(("DeviceType::CUDA", "DeviceType::CPU")):
        return Device("cuda" if short.endswith("CUDA") else "cpu")
    if name.startswith(
        ("cuda", "std::cout", "std::cerr", "stdout", "stderr", "torch::kStrided", "at::MemoryFormat")
    ):
        return Opaque(name)
    if name.startswith("torch::MemoryFormat") or name.startswith("c10::MemoryFormat"):
        return Opaque(name)
    return None


def identifier(machine: Machine, node: Node, scope: Scope) -> Any:
    name = text_of(node)
    place = machine.lookup(name, scope)
    if place is not None:
        return place.get()
    short = name.rsplit("::", 1)[-1]
    if short in machine.program.kernels:
        return KernelRef(short)
    if machine.program.overloads(short):
        return FunctionRef(short)
    known = constant(name)
    if known is not None:
        return known.value if isinstance(known, Cell) else known
    raise machine.unsupported(f"unknown name {name!r}", node)


def qualified(machine: Machine, node: Node, scope: Scope) -> Any:
    last = node
    while last.type == "qualified_identifier":
        last = child(last, "name")
    if last.type == "template_function":
        return template_function(machine, last, scope)
    return identifier(machine, node, scope)


def template_function(machine: Machine, node: Node, scope: Scope) -> Any:
    name = text_of(node.field("name")).rsplit("::", 1)[-1]
    arguments = template_arguments(machine, node.field("arguments"), scope)
    if name in machine.program.kernels:
        return KernelRef(name, arguments)
    if machine.program.overloads(name):
        return FunctionRef(name, arguments)
    value = None
    if value is None:
        raise machine.unsupported(f"unknown template {name!r}", node)
    return value


def template_arguments(machine: Machine, node: Node | None, scope: Scope) -> tuple[str, ...]:
    """Template arguments as text: types resolved (``scalar_t`` -> ``float``), values computed (``kWarps`` -> ``4``)."""
    if node is None:
        return ()
    return tuple(_template_argument(machine, child, scope) for child in node.named_children)


def _template_argument(machine: Machine, node: Node, scope: Scope) -> str:
    raw = text_of(node)
    if node.type == "type_descriptor":
        bare = parse_type(raw)
        place = machine.lookup(bare.base, scope) if bare.stars == 0 else None
        if place is None:
            value = constant(bare.base) if "::" not in bare.base else None
            if isinstance(value, Num):
                return _template_value(value)
            return _resolved_text(machine, raw, scope)
        return _template_value(place.get(), raw)
    return _template_value(machine.evaluate(node, scope), raw)


def _resolved_text(machine: Machine, raw: str, scope: Scope) -> str:
    """A type's text with every alias and template parameter in it replaced: ``Pack<scalar_t, kN>`` too."""
    ctype = parse_type(raw)
    if "<" not in ctype.base:
        return str(machine.resolve(ctype, scope))
    tokens = [t.text for t in tokenize(ctype.base)[:-1]]
    out = []
    for token in tokens:
        place = scope.find(token) if token.isidentifier() else None
        value = place.get() if place is not None else None
        out.append(_template_value(value) if isinstance(value, Num) else str(machine.type_of(token, scope)))
    return "".join(out) + "*" * ctype.stars


def _template_value(value: Any, raw: str = "") -> str:
    if isinstance(value, Num):
        return str(value.value).lower() if value.kind == "bool" else str(value.value)
    if isinstance(value, (KernelRef, FunctionRef)):
        return value.name
    raise Unsupported(f"template argument {raw!r}")
