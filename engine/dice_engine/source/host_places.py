"""Places in host code: what can be assigned to."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_convert import child, copied, text_of
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import parse_type
from dice_engine.source.host_values import (
    Address,
    Cell,
    Dim3,
    FieldRef,
    HostError,
    ItemRef,
    Num,
    Place,
    Scope,
)


def place_of(machine: Machine, node: Node, scope: Scope) -> Place | None:
    """The variable that an expression names, or None when it names none."""
    if node.type in ("identifier", "qualified_identifier"):
        return machine.lookup(text_of(node), scope)
    if node.type == "parenthesized_expression":
        return place_of(machine, node.named_children[0], scope)
    if node.type == "field_expression":
        owner = machine.evaluate(child(node, "argument"), scope)
        name = text_of(node.field("field"))
        return FieldRef(owner, name) if isinstance(owner, Dim3) and name in ("x", "y", "z") else None
    if node.type == "subscript_expression":
        owner = machine.evaluate(child(node, "argument"), scope)
        if isinstance(owner, list):
            index = index_of(machine, node, scope)
            if not 0 <= index < len(owner):
                raise HostError(f"index {index} outside a host array of {len(owner)}, line {node.line}")
            return ItemRef(owner, index)
    if node.type == "pointer_expression" and node.children[0].text == "*":
        target = machine.evaluate(child(node, "argument"), scope)
        return target.place if isinstance(target, Address) else None
    return None


def index_of(machine: Machine, node: Node, scope: Scope) -> int:
    indices = child(node, "indices").named_children
    value = machine.evaluate(indices[0], scope) if len(indices) == 1 else None
    if not isinstance(value, Num):
        raise machine.unsupported("subscript that is no number", node)
    return int(value.value)


def store(machine: Machine, target: Node, value: Any, scope: Scope) -> Any:
    place = place_of(machine, target, scope)
    if place is None:
        raise machine.unsupported(f"assignment to {text_of(target)[:40]!r}", target)
    if isinstance(place, Cell) and place.ctype:
        value = machine.convert(value, parse_type(place.ctype), target)
    elif isinstance(place, ItemRef) and isinstance(place.get(), Num) and isinstance(value, Num):
        value = types.convert(value, place.get().kind)
    place.set(copied(value))
    return value
