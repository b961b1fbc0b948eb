"""Small conversions that every part of the interpreter uses: node text, value semantics, kinds of values."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_tree import Node
from dice_engine.source.host_values import Dim3, Num, Pointer, Unsupported


def text_of(node: Node | None) -> str:
    return node.text if node is not None else ""


def child(node: Node, name: str) -> Node:
    """A part that the grammar promises; ``Unsupported`` in a tree that was cut short."""
    found = node.field(name)
    if found is None:
        raise Unsupported(f"incomplete {node.type.replace('_', ' ')}, line {node.line}")
    return found


def copied(value: Any) -> Any:
    """C++ value semantics for what Python would share."""
    if isinstance(value, Dim3):
        return Dim3(value.x, value.y, value.z)
    return list(value) if isinstance(value, list) else value


def as_dim3(value: Any, node: Node | None = None) -> Dim3:
    if isinstance(value, Dim3):
        return Dim3(value.x, value.y, value.z)
    parts = value if isinstance(value, list) else [value]
    if len(parts) == 1 and isinstance(parts[0], Dim3):
        return as_dim3(parts[0])
    if len(parts) > 3 or not all(isinstance(p, Num) for p in parts):
        raise Unsupported(f"a launch dimension that is no number{at_line(node)}")
    return Dim3(*(int(types.convert(p, "uint32").value) for p in parts))


def type_of_value(value: Any) -> tuple[str, bool]:
    """``(ctype, is pointer)`` for template deduction; "" where the value says nothing."""
    if isinstance(value, Pointer):
        return value.ctype, True
    if isinstance(value, Num):
        return types.C_NAMES[value.kind], False
    return "", False


def fits(ctype: str, pointer: bool, value: Any) -> int:
    """How well a value fits a parameter, to choose between overloads."""
    given, is_pointer = type_of_value(value)
    if pointer != is_pointer:
        return 0
    if ctype == given or types.KINDS.get(ctype, ctype) == types.KINDS.get(given, given):
        return 2
    return 1 if isinstance(value, Num) and ctype in types.KINDS else 0


def kind_of(value: Any) -> str:
    return f"a value of kind {type(value).__name__}"


def at_line(node: Node | None) -> str:
    return f", line {node.line}" if node is not None else ""
