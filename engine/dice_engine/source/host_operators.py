"""Operators of host code on two values."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_values import (
    Device,
    Dtype,
    KernelRef,
    Num,
    Opaque,
    Pointer,
    Unsupported,
)

TENSOR_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def is_stream_output(text: str) -> bool:
    return text.startswith(("std::cout", "std::cerr", "cout", "cerr"))


def combine(machine: Machine, operator: str, left: Any, right: Any, node: Node) -> Any:
    """``left operator right`` for two values: numbers, pointers, and equality of anything comparable."""
    if isinstance(left, Num) and isinstance(right, Num):
        try:
            return types.binary(operator, left, right)
        except Unsupported as error:
            raise machine.unsupported(str(error), node) from None
    if isinstance(right, Pointer) and isinstance(left, Num) and operator == "+":
        left, right = right, left
    if (
        isinstance(left, Pointer)
        and isinstance(right, Num)
        and operator in ("+", "-")
        and right.kind[0] != "f"
    ):
        return Pointer(left.base, left.offset + int(right.value) * (1 if operator == "+" else -1), left.ctype)
    if operator in ("==", "!="):
        if isinstance(left, Num) and left.value == 0:
            left = None
        if isinstance(right, Num) and right.value == 0:
            right = None
        plain = (type(None), Dtype, Device, Opaque, str, list, tuple, KernelRef)
        if left is None or right is None or (isinstance(left, plain) and isinstance(right, plain)):
            same = left is right if left is None or right is None else left == right
            return Num(same == (operator == "=="), "bool")
    if isinstance(left, str) and operator == "+":
        return left + str(machine.to_outside(right))
    if machine.is_tensor(left) or machine.is_tensor(right):
        name = TENSOR_OPERATORS.get(operator)
        if name is not None:
            return machine.world(
                "torch_function", name, [machine.to_outside(left), machine.to_outside(right)], {}
            )
    raise machine.unsupported(f"operator {operator} on these operands", node)
