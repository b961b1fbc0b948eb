"""Statements of host code."""

from __future__ import annotations

from typing import Any

from dice_engine.source.host_convert import text_of
from dice_engine.source.host_declare import declare, declare_alias, enumerate_names
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_values import (
    VOID,
    Cell,
    HostError,
    Num,
    Scope,
)

_IGNORED = {
    "comment",
    "static_assert_declaration",
    ";",
    "using_declaration",
    "namespace_alias_definition",
    "attributed_statement",
}


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class ControlFlow(Exception):
    """A break or continue on its way to its loop."""


class _Break(ControlFlow):
    pass


class _Continue(ControlFlow):
    pass


def run_body(machine: Machine, body: Node, scope: Scope) -> Any:
    """Run a function's compound statement; the returned value, or ``VOID``."""
    try:
        block(machine, body, scope)
    except _Return as returned:
        return returned.value
    return VOID


def block(machine: Machine, node: Node, scope: Scope) -> None:
    for child in node.named_children:
        execute(machine, child, scope)


def execute(machine: Machine, node: Node, scope: Scope) -> None:
    machine.step(node)
    kind = node.type
    if kind in _IGNORED:
        return
    if kind == "expression_statement":
        for child in node.named_children:
            machine.evaluate(child, scope)
    elif kind == "compound_statement":
        block(machine, node, scope.inner())
    elif kind == "declaration":
        declare(machine, node, scope)
    elif kind == "return_statement":
        values = node.named_children
        raise _Return(machine.evaluate(values[0], scope) if values else VOID)
    elif kind in _LOOPS:
        _LOOPS[kind](machine, node, scope)
    elif kind == "if_statement":
        _if(machine, node, scope)
    elif kind == "switch_statement":
        _switch(machine, node, scope)
    elif kind == "break_statement":
        raise _Break
    elif kind == "continue_statement":
        raise _Continue
    elif kind in ("alias_declaration", "type_definition"):
        declare_alias(machine, node, scope)
    elif kind == "enum_specifier":
        enumerate_names(machine, node, scope)
    elif kind == "throw_statement":
        raise HostError(_thrown(node))
    else:
        raise machine.unsupported(f"{kind.replace('_', ' ')} in host code", node)


def _thrown(node: Node) -> str:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type == "string_content":
            return text_of(current)
        stack += reversed(current.named_children)
    return text_of(node)[:200]


def _if(machine: Machine, node: Node, scope: Scope) -> None:
    inner = scope.inner()
    clause = node.field("condition")
    if clause is None:
        raise machine.unsupported("if without a condition", node)
    started = clause.field("initializer")
    if started is not None:
        for child in started.named_children if started.type == "init_statement" else [started]:
            execute(machine, child, inner)
    value = clause.field("value") or clause
    if value.type == "declaration":
        raise machine.unsupported("declaration as a condition", node)
    if machine.truth(machine.evaluate(value, inner), node):
        branch = node.field("consequence")
    else:
        branch = node.field("alternative")
        if branch is not None and branch.type == "else_clause":
            branch = next(iter(branch.named_children), None)
    if branch is not None:
        execute(machine, branch, inner)


def _once(machine: Machine, body: Node | None, scope: Scope) -> bool:
    """Run a loop's body; False when it broke out."""
    try:
        if body is not None:
            execute(machine, body, scope)
    except _Break:
        return False
    except _Continue:
        pass
    return True


def _holds(machine: Machine, node: Node, scope: Scope) -> bool:
    condition = node.field("condition")
    return condition is None or machine.truth(machine.evaluate(condition, scope), node)


def _for(machine: Machine, node: Node, scope: Scope) -> None:
    inner = scope.inner()
    started = node.field("initializer")
    if started is not None:
        if started.type == "declaration":
            declare(machine, started, inner)
        else:
            machine.evaluate(started, inner)
    update = node.field("update")
    while _holds(machine, node, inner):
        machine.step(node)
        if not _once(machine, node.field("body"), inner.inner()):
            break
        if update is not None:
            machine.evaluate(update, inner)


def _while(machine: Machine, node: Node, scope: Scope) -> None:
    while _holds(machine, node, scope):
        machine.step(node)
        if not _once(machine, node.field("body"), scope.inner()):
            break


def _do(machine: Machine, node: Node, scope: Scope) -> None:
    while _once(machine, node.field("body"), scope.inner()) and _holds(machine, node, scope):
        machine.step(node)


def _range(machine: Machine, node: Node, scope: Scope) -> None:
    right = node.field("right")
    values = machine.evaluate(right, scope) if right is not None else None
    if not isinstance(values, (list, tuple)):
        raise machine.unsupported("range-for over something else than a list", node)
    name = text_of(node.field("declarator")).lstrip("&* ")
    for value in list(values):
        machine.step(node)
        inner = scope.inner()
        inner.cells[name] = Cell(value)
        if not _once(machine, node.field("body"), inner):
            break


_LOOPS = {"for_statement": _for, "while_statement": _while, "do_statement": _do, "for_range_loop": _range}


def _switch(machine: Machine, node: Node, scope: Scope) -> None:
    condition, body = node.field("condition"), node.field("body")
    if condition is None or body is None:
        raise machine.unsupported("incomplete switch", node)
    value = machine.evaluate(condition, scope)
    cases = [c for c in body.named_children if c.type == "case_statement"]
    chosen = default = None
    for index, case in enumerate(cases):
        label = case.field("value")
        if label is None:
            default = index
        elif chosen is None:
            wanted = machine.evaluate(label, scope)
            same = (
                wanted.value == value.value
                if isinstance(wanted, Num) and isinstance(value, Num)
                else wanted == value
            )
            chosen = index if same else None
    start = default if chosen is None else chosen
    if start is None:
        return
    inner = scope.inner()
    try:
        for case in cases[start:]:
            label = case.field("value")
            for child in case.named_children:
                if child != label:
                    execute(machine, child, inner)
    except _Break:
        pass
