"""Declarations of host code: variables, arrays, enums, globals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_construct import construct, default
from dice_engine.source.host_convert import copied, text_of, type_of_value
from dice_engine.source.host_lex import (
    plain_text,
    split_commas,
    tokenize,
)
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_places import place_of
from dice_engine.source.host_tree import Node, parse_tree
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    Cell,
    HostError,
    Num,
    Scope,
    Unsupported,
)

_ARRAY_LIMIT = 1 << 16


def declare(machine: Machine, node: Node, scope: Scope) -> None:
    """A declaration: every declarator of it becomes a variable in ``scope``."""
    named = node.field("type")
    if named is None:
        raise machine.unsupported("declaration without a type", node)
    if named.type == "enum_specifier":
        enumerate_names(machine, named, scope)
    if named.type in ("struct_specifier", "class_specifier", "union_specifier") and named.field("body"):
        raise machine.unsupported("type defined inside host code", node)
    base = parse_type(text_of(named))
    static = any(c.type == "storage_class_specifier" and text_of(c) == "static" for c in node.children)
    fixed = any(text_of(c) == "constexpr" for c in node.children)
    constant = fixed or any(text_of(c) == "const" for c in node.children)
    points = any("*" in text_of(declarator).split("=")[0] for declarator in node.fields("declarator"))
    if static and (not constant or (points and not fixed)) and scope.parent is not None:
        raise machine.unsupported("static variable (state that survives the call)", node)
    for declarator in node.fields("declarator"):
        _declarator(machine, declarator, base, scope)


def _declarator(machine: Machine, node: Node, base: CType, scope: Scope) -> None:
    value_node = node.field("value") if node.type == "init_declarator" else None
    target = node.field("declarator") if node.type == "init_declarator" else node
    stars, arrays, reference = base.stars, [], base.reference
    while target is not None and target.type not in ("identifier", "structured_binding_declarator"):
        if target.type == "pointer_declarator":
            stars += 1
        elif target.type == "array_declarator":
            arrays.append(target.field("size"))
        elif target.type == "reference_declarator":
            reference = True
        elif target.type in ("function_declarator", "parenthesized_declarator"):
            _function_like(machine, node, target, base, scope)
            return
        inner = target.field("declarator")
        target = (
            inner
            if inner is not None
            else next((c for c in target.named_children if "identifier" in c.type), None)
        )
    if target is None:
        raise machine.unsupported(f"declaration {text_of(node)[:60]!r}", node)
    if target.type == "structured_binding_declarator":
        _structured(machine, target, value_node, scope)
        return
    name = text_of(target)
    ctype = machine.resolve(CType(base.base, stars, reference, base.const), scope)
    if arrays:
        scope.cells[name] = Cell(_array(machine, arrays, value_node, ctype, scope, node))
        return
    if reference and value_node is not None:
        place = place_of(machine, value_node, scope)
        scope.cells[name] = place if place is not None else Cell(machine.evaluate(value_node, scope))
        return
    if value_node is None:
        value = default(machine, ctype, node)
    elif value_node.type == "argument_list" or (
        value_node.type == "initializer_list" and ctype.base != "auto"
    ):
        value = construct(machine, str(ctype), machine.evaluate(value_node, scope), scope, value_node)
    else:
        value = machine.evaluate(value_node, scope)
    if ctype.base in ("auto", "decltype(auto)"):
        scope.cells[name] = Cell(copied(value), _held_type(value))
        return
    scope.cells[name] = Cell(copied(machine.convert(value, ctype, node)), str(ctype))


def _held_type(value: Any) -> str:
    """The type that ``auto`` takes from a number, so that later assignments convert to it."""
    return type_of_value(value)[0] if isinstance(value, Num) else ""


def _function_like(machine: Machine, node: Node, target: Node, base: CType, scope: Scope) -> None:
    """``dim3 grid(a, b);`` and ``void (*entry)(int) = kernel;`` look like functions to the grammar."""
    inner = target.field("declarator")
    value_node = node.field("value") if node.type == "init_declarator" else None
    if (
        inner is not None
        and inner.type == "identifier"
        and target.type == "function_declarator"
        and value_node is None
    ):
        arguments = text_of(target.field("parameters"))
        values = [machine.evaluate_text(part, scope) for part in _arguments(arguments[1:-1])]
        ctype = machine.resolve(base, scope)
        value = construct(machine, str(ctype), values, scope, node)
        scope.cells[text_of(inner)] = Cell(machine.convert(value, ctype, node), str(ctype))
        return
    if value_node is not None:
        names = [c for c in _descendants(target) if c.type == "identifier"]
        if names:
            scope.cells[text_of(names[0])] = Cell(machine.evaluate(value_node, scope))
            return
    raise machine.unsupported(f"declaration {text_of(node)[:60]!r}", node)


def _descendants(node: Node) -> list[Node]:
    found, stack = [], [node]
    while stack:
        current = stack.pop()
        found.append(current)
        stack += reversed(current.named_children)
    return found


def _arguments(text: str) -> list[str]:
    return [plain_text(part) for part in split_commas(tokenize(text)[:-1]) if part]


def _structured(machine: Machine, target: Node, value_node: Node | None, scope: Scope) -> None:
    names = [text_of(c) for c in target.named_children]
    value = machine.evaluate(value_node, scope) if value_node is not None else None
    if not isinstance(value, (list, tuple)) or len(value) != len(names):
        raise machine.unsupported("structured binding of something else than a tuple", target)
    for name, part in zip(names, value, strict=True):
        scope.cells[name] = Cell(part)


def _array(
    machine: Machine,
    sizes: list[Node | None],
    value_node: Node | None,
    ctype: CType,
    scope: Scope,
    node: Node,
) -> list[Any]:
    if len(sizes) > 1:
        raise machine.unsupported("host array of several dimensions", node)
    values = machine.evaluate(value_node, scope) if value_node is not None else []
    if not isinstance(values, list):
        raise machine.unsupported("array initialised with something else than a list", node)
    values = [machine.convert(v, ctype, node) for v in values]
    if sizes[0] is not None:
        size = machine.evaluate(sizes[0], scope)
        count = int(size.value) if isinstance(size, Num) else -1
        if not 0 <= count <= _ARRAY_LIMIT:
            raise machine.unsupported(f"host array of {count} elements", node)
        kind = types.KINDS.get(ctype.base) if not ctype.stars else None
        values += [Num(0, kind) if kind else None] * (count - len(values))
    return values


def enumerate_names(machine: Machine, node: Node, scope: Scope) -> None:
    """Names of an enum become ints."""
    named = node.field("name")
    if named is not None:
        scope.types[text_of(named)] = "int"
    following = Num(0, "int32")
    body = node.field("body")
    for item in body.named_children if body is not None else []:
        if item.type != "enumerator":
            continue
        value = item.field("value")
        if value is not None:
            given = machine.evaluate(value, scope)
            if not isinstance(given, Num):
                raise machine.unsupported("enumerator that is no number", item)
            following = types.convert(given, "int32")
        scope.cells[text_of(item.field("name"))] = Cell(following, "int")
        following = types.binary("+", following, Num(1, "int32"))


def declare_alias(machine: Machine, node: Node, scope: Scope) -> None:
    """``using A = T;`` and ``typedef T A;``."""
    target = machine.type_of(text_of(node.field("type")), scope)
    if node.type == "alias_declaration":
        scope.types[text_of(node.field("name"))] = str(target)
    else:
        declared = text_of(node.field("declarator"))
        scope.types[declared.lstrip("* ")] = str(target) + "*" * declared.count("*")


_GLOBALS: dict[str, Callable[[Machine, Node, Scope], None]] = {
    "declaration": declare,
    "alias_declaration": declare_alias,
    "type_definition": declare_alias,
    "enum_specifier": enumerate_names,
}


def declare_global(machine: Machine, line: int, text: str, scope: Scope) -> None:
    """One declaration outside functions; what cannot be understood stays unknown until somebody asks for it."""
    root = parse_tree(text, line)
    if root.has_error:
        return
    for part in root.named_children:
        if part.type in _GLOBALS:
            try:
                _GLOBALS[part.type](machine, part, scope)
            except (Unsupported, HostError):
                continue
