"""Expressions of host code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tree_sitter import Node

from dice_engine.source import host_types as types
from dice_engine.source.host_machine import Machine, as_dim3, copied
from dice_engine.source.host_parse import parse_tree
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    Address,
    Cell,
    Closure,
    Device,
    Dim3,
    Dtype,
    FieldRef,
    FunctionRef,
    HostError,
    ItemRef,
    KernelRef,
    Num,
    Opaque,
    Options,
    Place,
    Pointer,
    Scope,
    Unsupported,
)

_CASTS = {"static_cast", "reinterpret_cast", "const_cast"}


def evaluate(machine: Machine, node: Node, scope: Scope) -> Any:
    """The value of an expression node; ``Unsupported`` names the construct and the line otherwise."""
    machine.step(node)
    handler = _HANDLERS.get(node.type)
    if handler is None:
        raise machine.unsupported(f"{node.type.replace('_', ' ')} in host code", node)
    return handler(machine, node, scope)


def evaluate_text(machine: Machine, text: str, scope: Scope) -> Any:
    """Evaluate an expression given as text (default arguments, template arguments)."""
    root = parse_tree(f"auto value = {text};")
    declarator = root.named_children[0].child_by_field_name("declarator") if root.named_children else None
    value = declarator.child_by_field_name("value") if declarator is not None else None
    if root.has_error or value is None:
        raise Unsupported(f"expression {text!r}")
    return evaluate(machine, value, scope)


def text_of(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def place_of(machine: Machine, node: Node, scope: Scope) -> Place | None:
    """The variable that an expression names, or None when it names none."""
    if node.type in ("identifier", "qualified_identifier"):
        return machine.lookup(text_of(node), scope)
    if node.type == "parenthesized_expression":
        return place_of(machine, node.named_children[0], scope)
    if node.type == "field_expression":
        owner = evaluate(machine, _field(node, "argument"), scope)
        name = text_of(node.child_by_field_name("field"))
        return FieldRef(owner, name) if isinstance(owner, Dim3) and name in ("x", "y", "z") else None
    if node.type == "subscript_expression":
        owner = evaluate(machine, _field(node, "argument"), scope)
        if isinstance(owner, list):
            index = _index(machine, node, scope)
            if not 0 <= index < len(owner):
                raise HostError(
                    f"index {index} outside a host array of {len(owner)}, line {node.start_point[0] + 1}"
                )
            return ItemRef(owner, index)
    if node.type == "pointer_expression" and text_of(node.child(0)) == "*":
        target = evaluate(machine, _field(node, "argument"), scope)
        return target.place if isinstance(target, Address) else None
    return None


def _field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise Unsupported(f"incomplete {node.type.replace('_', ' ')}, line {node.start_point[0] + 1}")
    return child


def _index(machine: Machine, node: Node, scope: Scope) -> int:
    indices = _field(node, "indices").named_children
    value = evaluate(machine, indices[0], scope) if len(indices) == 1 else None
    if not isinstance(value, Num):
        raise machine.unsupported("subscript that is no number", node)
    return int(value.value)


def _identifier(machine: Machine, node: Node, scope: Scope) -> Any:
    name = text_of(node)
    place = machine.lookup(name, scope)
    if place is not None:
        return place.get()
    short = name.rsplit("::", 1)[-1]
    if short in machine.program.kernels:
        return KernelRef(short)
    if machine.program.overloads(short):
        return FunctionRef(short)
    known = library.constant(name)
    if known is not None:
        return known.value if isinstance(known, Cell) else known
    raise machine.unsupported(f"unknown name {name!r}", node)


def _template_function(machine: Machine, node: Node, scope: Scope) -> Any:
    name = text_of(node.child_by_field_name("name")).rsplit("::", 1)[-1]
    arguments = template_arguments(machine, node.child_by_field_name("arguments"), scope)
    if name in machine.program.kernels:
        return KernelRef(name, arguments)
    if machine.program.overloads(name):
        return FunctionRef(name, arguments)
    value = library.template_constant(name, arguments)
    if value is None:
        raise machine.unsupported(f"unknown template {name!r}", node)
    return value


def template_arguments(machine: Machine, node: Node | None, scope: Scope) -> tuple[str, ...]:
    """Template arguments as text: types resolved (``scalar_t`` -> ``float``), values computed (``kWarps`` -> ``4``)."""
    if node is None:
        return ()
    return tuple(
        _template_argument(machine, child, scope) for child in node.named_children if child.type != "comment"
    )


def _template_argument(machine: Machine, node: Node, scope: Scope) -> str:
    raw = text_of(node)
    if node.type == "type_descriptor":
        bare = parse_type(raw)
        place = machine.lookup(bare.base, scope) if bare.stars == 0 else None
        if place is None:
            value = library.constant(bare.base) if "::" not in bare.base else None
            if isinstance(value, Num):
                return _template_value(value)
            return _resolved_text(machine, raw, scope)
        return _template_value(place.get(), raw)
    return _template_value(evaluate(machine, node, scope), raw)


def _resolved_text(machine: Machine, raw: str, scope: Scope) -> str:
    """A type's text with every alias and template parameter in it replaced: ``Pack<scalar_t, kN>`` too."""
    ctype = parse_type(raw)
    if "<" not in ctype.base:
        return str(machine.resolve(ctype, scope))
    tokens = library.words(ctype.base)
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


def _number(machine: Machine, node: Node, scope: Scope) -> Any:
    return types.literal(text_of(node))


def _string(machine: Machine, node: Node, scope: Scope) -> Any:
    if node.type == "concatenated_string":
        return "".join(str(evaluate(machine, child, scope)) for child in node.named_children)
    raw = text_of(node)
    try:
        value = ast.literal_eval(raw.removeprefix("L").removeprefix("u8"))
    except (ValueError, SyntaxError):
        return raw.strip('"')
    if node.type == "char_literal":
        return Num(ord(value), "int8") if len(value) == 1 else Num(0, "int8")
    return value


def _parenthesized(machine: Machine, node: Node, scope: Scope) -> Any:
    inner = [c for c in node.named_children if c.type != "comment"]
    return evaluate(machine, inner[0], scope)


def _binary(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.child_by_field_name("operator"))
    left_node, right_node = _field(node, "left"), _field(node, "right")
    if operator == "<<" and library.is_stream_output(text_of(left_node)):
        return Opaque("output")
    left = evaluate(machine, left_node, scope)
    if operator in ("&&", "||", "and", "or"):
        if machine.truth(left, node) == (operator in ("||", "or")):
            return Num(operator in ("||", "or"), "bool")
        return Num(machine.truth(evaluate(machine, right_node, scope), node), "bool")
    return combine(machine, operator, left, evaluate(machine, right_node, scope), node)


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
        name = library.TENSOR_OPERATORS.get(operator)
        if name is not None:
            return machine.world(
                "torch_function", name, [machine.to_outside(left), machine.to_outside(right)], {}
            )
    raise machine.unsupported(f"operator {operator} on these operands", node)


def _unary(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.child_by_field_name("operator"))
    value = evaluate(machine, _field(node, "argument"), scope)
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
    operator = text_of(node.child_by_field_name("operator")) or "="
    left = _field(node, "left")
    value = evaluate(machine, _field(node, "right"), scope)
    if left.type == "call_expression" and text_of(left.child_by_field_name("function")) in (
        "std::tie",
        "tie",
    ):
        targets = _field(left, "arguments").named_children
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


def _update(machine: Machine, node: Node, scope: Scope) -> Any:
    operator = text_of(node.child_by_field_name("operator"))
    argument = _field(node, "argument")
    place = place_of(machine, argument, scope)
    if place is None:
        raise machine.unsupported(f"{operator} of {text_of(argument)[:40]!r}", node)
    before = place.get()
    after = store(machine, argument, combine(machine, operator[0], before, Num(1, "int32"), node), scope)
    return after if text_of(node.child(0)) == operator else before


def _conditional(machine: Machine, node: Node, scope: Scope) -> Any:
    taken = machine.truth(evaluate(machine, _field(node, "condition"), scope), node)
    value = evaluate(machine, _field(node, "consequence" if taken else "alternative"), scope)
    return value


def cast(machine: Machine, value: Any, ctype: CType, node: Node) -> Any:
    """``(T)value``, ``T(value)`` and the named casts; ``ctype`` is resolved."""
    if ctype.stars:
        if isinstance(value, Pointer):
            if ctype.element in ("void", value.ctype):
                return value
            return _repointed(machine, value, ctype.element, node)
        if isinstance(value, (Address, KernelRef, FunctionRef, Closure)) or value is None:
            return value
        if isinstance(value, Num) and value.value == 0:
            return None
        raise machine.unsupported(f"cast to {ctype}", node)
    if ctype.base == "void":
        return value
    if ctype.base == "dim3":
        return as_dim3(value, node)
    return machine.convert(value, ctype, node)


def _repointed(machine: Machine, pointer: Pointer, element: str, node: Node) -> Pointer:
    if pointer.offset == 0 or types.size_of(pointer.ctype) == types.size_of(element):
        known = types.size_of(element) is not None or pointer.offset == 0
        if known:
            return Pointer(pointer.base, pointer.offset, element)
    old, new = types.size_of(pointer.ctype), types.size_of(element)
    if old is None or new is None or pointer.offset * old % new:
        raise machine.unsupported(f"cast of an offset {pointer.ctype} pointer to {element}*", node)
    return Pointer(pointer.base, pointer.offset * old // new, element)


def _cast(machine: Machine, node: Node, scope: Scope) -> Any:
    ctype = machine.type_of(text_of(_field(node, "type")), scope)
    return cast(machine, evaluate(machine, _field(node, "value"), scope), ctype, node)


def _sizeof(machine: Machine, node: Node, scope: Scope) -> Any:
    named = node.child_by_field_name("type")
    if named is None:
        inner = _field(node, "value")
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
    argument = _field(node, "argument")
    if text_of(node.child(0)) == "&":
        place = place_of(machine, argument, scope)
        if place is not None:
            return Address(place)
        if argument.type == "subscript_expression":
            base = evaluate(machine, _field(argument, "argument"), scope)
            if isinstance(base, Pointer):
                return Pointer(base.base, base.offset + _index(machine, argument, scope), base.ctype)
        value = evaluate(machine, argument, scope)
        if isinstance(value, (KernelRef, FunctionRef)):
            return value
        raise machine.unsupported(f"address of {text_of(argument)[:40]!r}", node)
    value = evaluate(machine, argument, scope)
    if isinstance(value, Address):
        return value.place.get()
    if isinstance(value, Opaque) or machine.is_tensor(value):
        return value
    raise machine.unsupported("device memory read by host code", node)


def _subscript(machine: Machine, node: Node, scope: Scope) -> Any:
    owner = evaluate(machine, _field(node, "argument"), scope)
    if isinstance(owner, (list, tuple)):
        index = _index(machine, node, scope)
        if not 0 <= index < len(owner):
            raise HostError(
                f"index {index} outside a host array of {len(owner)}, line {node.start_point[0] + 1}"
            )
        return owner[index]
    if machine.is_tensor(owner):
        return machine.world("tensor_method", owner, "select", [0, _index(machine, node, scope)], None)
    raise machine.unsupported("device memory read by host code", node)


def _field_value(machine: Machine, node: Node, scope: Scope) -> Any:
    place = place_of(machine, node, scope)
    if place is not None:
        return place.get()
    owner = evaluate(machine, _field(node, "argument"), scope)
    return library.member(machine, owner, text_of(node.child_by_field_name("field")), node)


def _list(machine: Machine, node: Node, scope: Scope) -> Any:
    return [evaluate(machine, c, scope) for c in node.named_children if c.type != "comment"]


def _comma(machine: Machine, node: Node, scope: Scope) -> Any:
    evaluate(machine, _field(node, "left"), scope)
    return evaluate(machine, _field(node, "right"), scope)


def _compound_literal(machine: Machine, node: Node, scope: Scope) -> Any:
    name = text_of(_field(node, "type"))
    value = evaluate(machine, _field(node, "value"), scope)
    return library.construct(machine, name, value, scope, node)


_HANDLERS: dict[str, Callable[[Machine, Node, Scope], Any]] = {
    "identifier": _identifier,
    "qualified_identifier": lambda m, n, s: _qualified(m, n, s),
    "template_function": _template_function,
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
    "condition_clause": lambda m, n, s: evaluate(m, _field(n, "value"), s),
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
    "call_expression": lambda m, n, s: host_call.call(m, n, s),
}


def _qualified(machine: Machine, node: Node, scope: Scope) -> Any:
    last = node
    while last.type == "qualified_identifier":
        last = _field(last, "name")
    if last.type == "template_function":
        return _template_function(machine, last, scope)
    return _identifier(machine, node, scope)


_ = Options

from dice_engine.source import host_call  # noqa: E402  (calls and expressions need each other)
from dice_engine.source import host_library as library  # noqa: E402
