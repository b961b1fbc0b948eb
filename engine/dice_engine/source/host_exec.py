"""Statements of host code."""

from __future__ import annotations

from typing import Any

from tree_sitter import Node

from dice_engine.source import host_types as types
from dice_engine.source.host_eval import evaluate, evaluate_text, text_of
from dice_engine.source.host_machine import Machine, copied, type_of_value
from dice_engine.source.host_parse import parse_tree
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import VOID, Cell, HostError, Num, Scope, Unsupported

_IGNORED = {
    "comment",
    "static_assert_declaration",
    ";",
    "using_declaration",
    "namespace_alias_definition",
    "attributed_statement",
}
_ARRAY_LIMIT = 1 << 16


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
            if child.type != "comment":
                evaluate(machine, child, scope)
    elif kind == "compound_statement":
        block(machine, node, scope.inner())
    elif kind == "declaration":
        declare(machine, node, scope)
    elif kind == "return_statement":
        values = [c for c in node.named_children if c.type != "comment"]
        raise _Return(evaluate(machine, values[0], scope) if values else VOID)
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
    elif kind == "alias_declaration":
        target = machine.type_of(text_of(node.child_by_field_name("type")), scope)
        scope.types[text_of(node.child_by_field_name("name"))] = str(target)
    elif kind == "type_definition":
        target = machine.type_of(text_of(node.child_by_field_name("type")), scope)
        declared = text_of(node.child_by_field_name("declarator"))
        scope.types[declared.lstrip("* ")] = str(target) + "*" * declared.count("*")
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
    clause = node.child_by_field_name("condition")
    if clause is None:
        raise machine.unsupported("if without a condition", node)
    started = clause.child_by_field_name("initializer")
    if started is not None:
        for child in started.named_children if started.type == "init_statement" else [started]:
            execute(machine, child, inner)
    value = clause.child_by_field_name("value") or clause
    if value.type == "declaration":
        raise machine.unsupported("declaration as a condition", node)
    if machine.truth(evaluate(machine, value, inner), node):
        branch = node.child_by_field_name("consequence")
    else:
        branch = node.child_by_field_name("alternative")
        if branch is not None and branch.type == "else_clause":
            branch = next((c for c in branch.named_children if c.type != "comment"), None)
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
    condition = node.child_by_field_name("condition")
    return condition is None or machine.truth(evaluate(machine, condition, scope), node)


def _for(machine: Machine, node: Node, scope: Scope) -> None:
    inner = scope.inner()
    started = node.child_by_field_name("initializer")
    if started is not None:
        if started.type == "declaration":
            declare(machine, started, inner)
        else:
            evaluate(machine, started, inner)
    update = node.child_by_field_name("update")
    while _holds(machine, node, inner):
        machine.step(node)
        if not _once(machine, node.child_by_field_name("body"), inner.inner()):
            break
        if update is not None:
            evaluate(machine, update, inner)


def _while(machine: Machine, node: Node, scope: Scope) -> None:
    while _holds(machine, node, scope):
        machine.step(node)
        if not _once(machine, node.child_by_field_name("body"), scope.inner()):
            break


def _do(machine: Machine, node: Node, scope: Scope) -> None:
    while _once(machine, node.child_by_field_name("body"), scope.inner()) and _holds(machine, node, scope):
        machine.step(node)


def _range(machine: Machine, node: Node, scope: Scope) -> None:
    right = node.child_by_field_name("right")
    values = evaluate(machine, right, scope) if right is not None else None
    if not isinstance(values, (list, tuple)):
        raise machine.unsupported("range-for over something else than a list", node)
    name = text_of(node.child_by_field_name("declarator")).lstrip("&* ")
    for value in list(values):
        machine.step(node)
        inner = scope.inner()
        inner.cells[name] = Cell(value)
        if not _once(machine, node.child_by_field_name("body"), inner):
            break


_LOOPS = {"for_statement": _for, "while_statement": _while, "do_statement": _do, "for_range_loop": _range}


def _switch(machine: Machine, node: Node, scope: Scope) -> None:
    condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    if condition is None or body is None:
        raise machine.unsupported("incomplete switch", node)
    value = evaluate(machine, condition, scope)
    cases = [c for c in body.named_children if c.type == "case_statement"]
    chosen = default = None
    for index, case in enumerate(cases):
        label = case.child_by_field_name("value")
        if label is None:
            default = index
        elif chosen is None:
            wanted = evaluate(machine, label, scope)
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
            label = case.child_by_field_name("value")
            for child in case.named_children:
                if child != label:
                    execute(machine, child, inner)
    except _Break:
        pass


def declare(machine: Machine, node: Node, scope: Scope) -> None:
    """A declaration: every declarator of it becomes a variable in ``scope``."""
    named = node.child_by_field_name("type")
    if named is None:
        raise machine.unsupported("declaration without a type", node)
    if named.type == "enum_specifier":
        enumerate_names(machine, named, scope)
    if named.type in ("struct_specifier", "class_specifier", "union_specifier") and named.child_by_field_name(
        "body"
    ):
        raise machine.unsupported("type defined inside host code", node)
    base = parse_type(text_of(named))
    static = any(c.type == "storage_class_specifier" and text_of(c) == "static" for c in node.children)
    constant = any(text_of(c) in ("const", "constexpr") for c in node.children)
    if static and not constant and scope.parent is not None:
        raise machine.unsupported("static variable (state that survives the call)", node)
    for declarator in node.children_by_field_name("declarator"):
        _declarator(machine, declarator, base, scope)


def _declarator(machine: Machine, node: Node, base: CType, scope: Scope) -> None:
    value_node = node.child_by_field_name("value") if node.type == "init_declarator" else None
    target = node.child_by_field_name("declarator") if node.type == "init_declarator" else node
    stars, arrays, reference = base.stars, [], base.reference
    while target is not None and target.type not in ("identifier", "structured_binding_declarator"):
        if target.type == "pointer_declarator":
            stars += 1
        elif target.type == "array_declarator":
            arrays.append(target.child_by_field_name("size"))
        elif target.type == "reference_declarator":
            reference = True
        elif target.type in ("function_declarator", "parenthesized_declarator"):
            _function_like(machine, node, target, base, scope)
            return
        inner = target.child_by_field_name("declarator")
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
        place = _places.place_of(machine, value_node, scope)
        scope.cells[name] = place if place is not None else Cell(evaluate(machine, value_node, scope))
        return
    if value_node is None:
        value = library.default(machine, ctype, node)
    elif value_node.type == "argument_list" or (
        value_node.type == "initializer_list" and ctype.base != "auto"
    ):
        value = library.construct(
            machine, str(ctype), evaluate(machine, value_node, scope), scope, value_node
        )
    else:
        value = evaluate(machine, value_node, scope)
    if ctype.base in ("auto", "decltype(auto)"):
        scope.cells[name] = Cell(copied(value), _held_type(value))
        return
    scope.cells[name] = Cell(copied(machine.convert(value, ctype, node)), str(ctype))


def _held_type(value: Any) -> str:
    """The type that ``auto`` takes from a number, so that later assignments convert to it."""
    return type_of_value(value)[0] if isinstance(value, Num) else ""


def _function_like(machine: Machine, node: Node, target: Node, base: CType, scope: Scope) -> None:
    """``dim3 grid(a, b);`` and ``void (*entry)(int) = kernel;`` look like functions to the grammar."""
    inner = target.child_by_field_name("declarator")
    value_node = node.child_by_field_name("value") if node.type == "init_declarator" else None
    if (
        inner is not None
        and inner.type == "identifier"
        and target.type == "function_declarator"
        and value_node is None
    ):
        arguments = text_of(target.child_by_field_name("parameters"))
        values = [evaluate_text(machine, part, scope) for part in _split(arguments[1:-1])]
        ctype = machine.resolve(base, scope)
        value = library.construct(machine, str(ctype), values, scope, node)
        scope.cells[text_of(inner)] = Cell(machine.convert(value, ctype, node), str(ctype))
        return
    if value_node is not None:
        names = [c for c in _descendants(target) if c.type == "identifier"]
        if names:
            scope.cells[text_of(names[0])] = Cell(evaluate(machine, value_node, scope))
            return
    raise machine.unsupported(f"declaration {text_of(node)[:60]!r}", node)


def _descendants(node: Node) -> list[Node]:
    found, stack = [], [node]
    while stack:
        current = stack.pop()
        found.append(current)
        stack += reversed(current.named_children)
    return found


def _split(text: str) -> list[str]:
    return [part for part in library.split_arguments(text) if part.strip()]


def _structured(machine: Machine, target: Node, value_node: Node | None, scope: Scope) -> None:
    names = [text_of(c) for c in target.named_children]
    value = evaluate(machine, value_node, scope) if value_node is not None else None
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
    values = evaluate(machine, value_node, scope) if value_node is not None else []
    if not isinstance(values, list):
        raise machine.unsupported("array initialised with something else than a list", node)
    values = [machine.convert(v, ctype, node) for v in values]
    if sizes[0] is not None:
        size = evaluate(machine, sizes[0], scope)
        count = int(size.value) if isinstance(size, Num) else -1
        if not 0 <= count <= _ARRAY_LIMIT:
            raise machine.unsupported(f"host array of {count} elements", node)
        kind = types.KINDS.get(ctype.base) if not ctype.stars else None
        values += [Num(0, kind) if kind else None] * (count - len(values))
    return values


def enumerate_names(machine: Machine, node: Node, scope: Scope) -> None:
    """Names of an enum become ints."""
    named = node.child_by_field_name("name")
    if named is not None:
        scope.types[text_of(named)] = "int"
    following = Num(0, "int32")
    body = node.child_by_field_name("body")
    for item in body.named_children if body is not None else []:
        if item.type != "enumerator":
            continue
        value = item.child_by_field_name("value")
        if value is not None:
            given = evaluate(machine, value, scope)
            if not isinstance(given, Num):
                raise machine.unsupported("enumerator that is no number", item)
            following = types.convert(given, "int32")
        scope.cells[text_of(item.child_by_field_name("name"))] = Cell(following, "int")
        following = types.binary("+", following, Num(1, "int32"))


def declare_global(machine: Machine, text: str, scope: Scope) -> None:
    """One declaration outside functions; what cannot be understood stays unknown until somebody asks for it."""
    root = parse_tree(text)
    if root.has_error:
        return
    for child in root.named_children:
        if child.type in ("declaration", "alias_declaration", "type_definition", "enum_specifier"):
            try:
                execute(machine, child, scope)
            except (Unsupported, HostError):
                continue


from dice_engine.source import host_eval as _places  # noqa: E402
from dice_engine.source import host_library as library  # noqa: E402
