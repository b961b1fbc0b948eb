"""Expressions of host code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dice_engine.source import host_call
from dice_engine.source import host_library as library
from dice_engine.source import host_types as types
from dice_engine.source.host_construct import cast, construct
from dice_engine.source.host_convert import child, text_of
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_names import identifier, qualified, template_function
from dice_engine.source.host_operators import combine, is_stream_output
from dice_engine.source.host_places import index_of, place_of, store
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    Address,
    Cell,
    Closure,
    FunctionRef,
    HostError,
    KernelRef,
    Num,
    Opaque,
    Pointer,
    Scope,
)


def evaluate(machine: Machine, node: Node, scope: Scope) -> Any:
    """The value of an expression node; ``Unsupported`` names the construct and the line otherwise."""
    machine.step(node)
    handler = _HANDLERS.get(node.type)
    if handler is None:
        raise machine.unsupported(f"{node.type.replace('_', ' ')} in host code", node)
    return handler(machine, node, scope)


def _number(machine: Machine, node: Node, scope: Scope) -> Any:
    return types.literal(text_of(node))


def _string(machine: Machine, node: Node, scope: Scope) -> Any:
    if node.type == "concatenated_string":
        return "".join(str(machine.evaluate(child, scope)) for child in node.named_children)
    raw = text_of(node)
    try:
        value = ast.literal_eval(raw.removeprefix("L").removeprefix("u8"))
    except (ValueError, SyntaxError):
        return raw.strip('"')
    if node.type == "char_literal":
        return Num(ord(value), "int8") if len(value) == 1 else Num(0, "int8")
    return value


def _parenthesized(machine: Machine, node: Node, scope: Scope) -> Any:
    inner = node.named_children
    return machine.evaluate(inner[0], scope)


def _binary(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.field("operator"))
    left_node, right_node = child(node, "left"), child(node, "right")
    if operator == "<<" and is_stream_output(text_of(left_node)):
        return Opaque("output")
    left = machine.evaluate(left_node, scope)
    if operator in ("&&", "||", "and", "or"):
        if machine.truth(left, node) == (operator in ("||", "or")):
            return Num(operator in ("||", "or"), "bool")
        return Num(machine.truth(machine.evaluate(right_node, scope), node), "bool")
    return combine(machine, operator, left, machine.evaluate(right_node, scope), node)


def _unary(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.field("operator"))
    value = machine.evaluate(child(node, "argument"), scope)
    if operator in ("!", "not"):
        return Num(not machine.truth(value, node), "bool")
    if isinstance(value, Num) and operator in ("-", "+", "~"):
        kind = types.promoted(value.kind)
        number = types.convert(value, kind).value
        if operator == "~" and isinstance(number, float):
            raise machine.unsupported("~ of a float", node)
        return types.convert(Num({"-": -number, "+": number}.get(operator, ~int(number)), kind), kind)
    if operator == "-" and machine.is_tensor(value):
        return machine.world("torch_function", "neg", [value], {})
    raise machine.unsupported(f"operator {operator} on this operand", node)


def _assignment(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.field("operator")) or "="
    left = child(node, "left")
    value = machine.evaluate(child(node, "right"), scope)
    if left.type == "call_expression" and text_of(left.field("function")) in (
        "std::tie",
        "tie",
    ):
        targets = child(left, "arguments").named_children
        if not isinstance(value, (tuple, list)) or len(value) != len(targets):
            raise machine.unsupported("std::tie of something else than a tuple", node)
        for target, part in zip(targets, value, strict=True):
            if text_of(target) != "std::ignore":
                store(machine, target, part, scope)
        return value
    if operator != "=":
        place = place_of(machine, left, scope)
        if place is None:
            raise machine.unsupported(f"assignment to {text_of(left)[:40]!r}", node)
        value = combine(machine, operator[:-1], place.get(), value, node)
    return store(machine, left, value, scope)


def _update(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.field("operator"))
    argument = child(node, "argument")
    place = place_of(machine, argument, scope)
    if place is None:
        raise machine.unsupported(f"{operator} of {text_of(argument)[:40]!r}", node)
    before = place.get()
    after = store(machine, argument, combine(machine, operator[0], before, Num(1, "int32"), node), scope)
    return after if node.children[0].text == operator else before


def _conditional(machine: Machine, node: Node, scope: Scope) -> Any:
    taken = machine.truth(machine.evaluate(child(node, "condition"), scope), node)
    value = machine.evaluate(child(node, "consequence" if taken else "alternative"), scope)
    return value


def _cast(machine: Machine, node: Node, scope: Scope) -> Any:
    ctype = machine.type_of(text_of(child(node, "type")), scope)
    return cast(machine, machine.evaluate(child(node, "value"), scope), ctype, node)


def _sizeof(machine: Machine, node: Node, scope: Scope) -> Any:
    named = node.field("type")
    if named is None:
        inner = child(node, "value")
        name = text_of(inner).strip("() ")
        place = machine.lookup(name, scope)
        if place is not None:
            ctype = parse_type(place.ctype) if isinstance(place, Cell) and place.ctype else CType("")
            value = place.get()
            if isinstance(value, Num):
                return Num(types.SIZES[value.kind], "uint64")
            size = 8 if ctype.stars else None
        else:
            size = types.size_of(str(machine.type_of(name, scope)))
    else:
        size = types.size_of(str(machine.type_of(text_of(named), scope)))
    if size is None:
        raise machine.unsupported(f"{text_of(node)[:60]!r} of unknown size", node)
    return Num(size, "uint64")


def _pointer(machine: Machine, node: Node, scope: Scope) -> Any:
    argument = child(node, "argument")
    if node.children[0].text == "&":
        place = place_of(machine, argument, scope)
        if place is not None:
            return Address(place)
        if argument.type == "subscript_expression":
            base = machine.evaluate(child(argument, "argument"), scope)
            if isinstance(base, Pointer):
                return Pointer(base.base, base.offset + index_of(machine, argument, scope), base.ctype)
        value = machine.evaluate(argument, scope)
        if isinstance(value, (KernelRef, FunctionRef)):
            return value
        raise machine.unsupported(f"address of {text_of(argument)[:40]!r}", node)
    value = machine.evaluate(argument, scope)
    if isinstance(value, Address):
        return value.place.get()
    if isinstance(value, Opaque) or machine.is_tensor(value):
        return value
    raise machine.unsupported("device memory read by host code", node)


def _subscript(machine: Machine, node: Node, scope: Scope) -> Any:
    owner = machine.evaluate(child(node, "argument"), scope)
    if isinstance(owner, (list, tuple)):
        index = index_of(machine, node, scope)
        if not 0 <= index < len(owner):
            raise HostError(f"index {index} outside a host array of {len(owner)}, line {node.line}")
        return owner[index]
    if machine.is_tensor(owner):
        return machine.world("tensor_method", owner, "select", [0, index_of(machine, node, scope)], None)
    raise machine.unsupported("device memory read by host code", node)


def _field_value(machine: Machine, node: Node, scope: Scope) -> Any:
    place = place_of(machine, node, scope)
    if place is not None:
        return place.get()
    owner = machine.evaluate(child(node, "argument"), scope)
    return library.member(machine, owner, text_of(node.field("field")), node)


def _list(machine: Machine, node: Node, scope: Scope) -> Any:
    return [machine.evaluate(c, scope) for c in node.named_children]


def _comma(machine: Machine, node: Node, scope: Scope) -> Any:
    machine.evaluate(child(node, "left"), scope)
    return machine.evaluate(child(node, "right"), scope)


def _compound_literal(machine: Machine, node: Node, scope: Scope) -> Any:
    name = text_of(child(node, "type"))
    value = machine.evaluate(child(node, "value"), scope)
    return construct(machine, name, value, scope, node)


_HANDLERS: dict[str, Callable[[Machine, Node, Scope], Any]] = {
    "identifier": identifier,
    "qualified_identifier": qualified,
    "template_function": template_function,
    "number_literal": _number,
    "string_literal": _string,
    "raw_string_literal": _string,
    "concatenated_string": _string,
    "char_literal": _string,
    "true": lambda m, n, s: Num(True, "bool"),
    "false": lambda m, n, s: Num(False, "bool"),
    "null": lambda m, n, s: None,
    "nullptr": lambda m, n, s: None,
    "parenthesized_expression": _parenthesized,
    "condition_clause": lambda m, n, s: m.evaluate(child(n, "value"), s),
    "binary_expression": _binary,
    "unary_expression": _unary,
    "assignment_expression": _assignment,
    "update_expression": _update,
    "conditional_expression": _conditional,
    "cast_expression": _cast,
    "sizeof_expression": _sizeof,
    "pointer_expression": _pointer,
    "subscript_expression": _subscript,
    "field_expression": _field_value,
    "initializer_list": _list,
    "argument_list": _list,
    "comma_expression": _comma,
    "compound_literal_expression": _compound_literal,
    "lambda_expression": lambda m, n, s: Closure(n, s),
    "call_expression": host_call.call,
}
