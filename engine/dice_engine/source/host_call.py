"""Calls in host code: launches, functions of the file, lambdas, checks, the CUDA runtime, torch."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_launch
from dice_engine.source import host_library as library
from dice_engine.source.host_construct import cast, construct, is_templated_type
from dice_engine.source.host_convert import text_of
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_names import template_arguments
from dice_engine.source.host_operators import combine
from dice_engine.source.host_parse import HostFunction
from dice_engine.source.host_places import place_of
from dice_engine.source.host_tree import Node
from dice_engine.source.host_values import (
    Closure,
    FunctionRef,
    HostError,
    KernelRef,
    Num,
    Scope,
    Unsupported,
)

_CASTS = {"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"}
_CHECKS = {
    "TORCH_CHECK",
    "AT_ASSERT",
    "AT_ASSERTM",
    "TORCH_INTERNAL_ASSERT",
    "assert",
    "TORCH_CHECK_ARG",
    "CHECK",
    "TORCH_INTERNAL_ASSERT_DEBUG_ONLY",
    "TORCH_CHECK_VALUE",
    "TORCH_CHECK_TYPE",
    "TORCH_CHECK_NOT_IMPLEMENTED",
}
_COMPARING = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_STATUS_CHECKS = {
    "C10_CUDA_CHECK",
    "AT_CUDA_CHECK",
    "C10_CUDA_CHECK_WARN",
    "checkCudaErrors",
    "gpuErrchk",
    "CUDA_CHECK",
}
_FAILURES = {"AT_ERROR", "exit", "abort", "std::abort", "std::exit", "std::terminate", "TORCH_CHECK_FAIL"}


def call(machine: Machine, node: Node, scope: Scope) -> Any:
    """Evaluate a call expression of any shape."""
    function = node.field("function")
    arguments = node.field("arguments")
    if function is None or arguments is None:
        raise machine.unsupported("incomplete call", node)
    syntax = next((c for c in node.children if c.type == "kernel_call_syntax"), None)
    if syntax is not None:
        target = machine.evaluate(function, scope)
        host_launch.triple_chevron(machine, target, node, syntax, values_of(machine, arguments, scope), scope)
        return None
    function = _unwrapped(function)
    if function.type == "field_expression":
        return _method(machine, function, arguments, scope, node)
    if function.type in ("primitive_type", "sized_type_specifier"):
        return construct(machine, text_of(function), values_of(machine, arguments, scope), scope, node)
    if function.type == "lambda_expression":
        return machine.run_closure(Closure(function, scope), values_of(machine, arguments, scope), node)
    template: tuple[str, ...] = ()
    name = text_of(function)
    last = function
    while last.type == "qualified_identifier":
        inner = last.field("name")
        if inner is None:
            break
        last = inner
    if last.type in ("template_function", "template_type"):
        listed = last.field("arguments")
        bare = text_of(last.field("name"))
        if bare in _CASTS and listed is not None:
            ctype = machine.type_of(text_of(listed)[1:-1], scope)
            return cast(machine, _only(machine, arguments, scope), ctype, node)
        qualifier = name[: -len(text_of(last))] if name.endswith(text_of(last)) else ""
        full = f"{qualifier}{bare}"
        if is_templated_type(full):
            return construct(machine, name, values_of(machine, arguments, scope), scope, node)
        name, template = full, template_arguments(machine, listed, scope)
    elif function.type not in ("identifier", "qualified_identifier"):
        target = machine.evaluate(function, scope)
        return _apply(machine, target, arguments, scope, node)
    if name.startswith("cudaMemcpyToSymbol"):
        symbol = text_of(arguments.named_children[0]) if arguments.named_children else ""
        raise machine.unsupported(f"it fills constant memory, {symbol!r}", node)
    return _named(machine, name, template, arguments, scope, node)


def _unwrapped(node: Node) -> Node:
    """``(f)(x)`` is a call of f."""
    while node.type == "parenthesized_expression" and len(node.named_children) == 1:
        node = node.named_children[0]
    return node


def values_of(machine: Machine, arguments: Node, scope: Scope) -> list[Any]:
    return [machine.evaluate(c, scope) for c in arguments.named_children]


def _only(machine: Machine, arguments: Node, scope: Scope) -> Any:
    values = values_of(machine, arguments, scope)
    if len(values) != 1:
        raise machine.unsupported("cast of several values", arguments)
    return values[0]


def _named(
    machine: Machine, name: str, template: tuple[str, ...], arguments: Node, scope: Scope, node: Node
) -> Any:
    name = name.removeprefix("::")
    short = name.rsplit("::", 1)[-1]
    place = machine.lookup(name, scope)
    if place is not None:
        return _apply(machine, place.get(), arguments, scope, node)
    if short in machine.program.functions:
        return _function(machine, FunctionRef(short, template), arguments, scope, node)
    if host_launch.is_dispatch(name):
        return host_launch.dispatch(machine, name, arguments, scope)
    if name in _CHECKS:
        return _check(machine, arguments, scope)
    if name.startswith("TORCH_CHECK_") and name[12:] in _COMPARING:
        return _comparing_check(machine, name[12:], arguments, scope, node)
    if name in _FAILURES:
        said = _message(machine, arguments.named_children, scope)
        raise HostError(said if name == "AT_ERROR" and said else f"{name}({said}), line {node.line}")
    if name in _STATUS_CHECKS:
        values_of(machine, arguments, scope)
        return None
    if library.is_ignored(name):
        return Num(0, "int32")
    if name == "decltype" or name == "sizeof":
        raise machine.unsupported(f"{name} in this form", node)
    values = values_of(machine, arguments, scope)
    if name == "cudaLaunchCooperativeKernel":
        machine.world("torch_function", "cuda.cooperative", [], {})
    if name in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel"):
        return host_launch.launch_kernel(machine, values, scope, node)
    if machine.is_type(name, scope) or is_templated_type(name):
        return construct(machine, name, values, scope, node)
    return library.call(machine, name, template, values, scope, node)


def _function(machine: Machine, target: FunctionRef, arguments: Node, scope: Scope, node: Node) -> Any:
    nodes = arguments.named_children
    overloads = machine.program.overloads(target.name)
    by_reference = any(_reference_at(f, i) for f in overloads for i in range(len(nodes)))
    places = [place_of(machine, n, scope) if by_reference and n.type == "identifier" else None for n in nodes]
    values = [machine.evaluate(n, scope) for n in nodes]
    return machine.call(target.name, values, target.template_args, places=places, node=node)


def _reference_at(function: HostFunction, index: int) -> bool:
    return index < len(function.references) and function.references[index]


def _apply(machine: Machine, target: Any, arguments: Node, scope: Scope, node: Node) -> Any:
    if isinstance(target, FunctionRef):
        return _function(machine, target, arguments, scope, node)
    if isinstance(target, Closure):
        return machine.run_closure(target, values_of(machine, arguments, scope), node)
    if isinstance(target, KernelRef):
        raise machine.unsupported(f"{target.name} called without <<<>>>", node)
    raise machine.unsupported("call of something that is no function", node)


def _method(machine: Machine, function: Node, arguments: Node, scope: Scope, node: Node) -> Any:
    owner_node, field = function.field("argument"), function.field("field")
    if owner_node is None or field is None:
        raise machine.unsupported("incomplete call", node)
    if text_of(owner_node) == "at::globalContext()":
        return None
    owner = machine.evaluate(owner_node, scope)
    template = None
    name = text_of(field)
    if field.type in ("template_method", "dependent_name"):
        inner = field if field.type == "template_method" else field.named_children[0]
        name = text_of(inner.field("name"))
        template = ",".join(template_arguments(machine, inner.field("arguments"), scope))
    return library.method(machine, owner, name, values_of(machine, arguments, scope), template, node)


def _check(machine: Machine, arguments: Node, scope: Scope) -> None:
    nodes = arguments.named_children
    if not nodes or machine.truth(machine.evaluate(nodes[0], scope), arguments):
        return
    message = _message(machine, nodes[1:], scope)
    raise HostError(message or f"check failed: {text_of(nodes[0])[:120]}, line {arguments.line}")


def _message(machine: Machine, nodes: list[Node], scope: Scope) -> str:
    parts = []
    for node in nodes:
        try:
            value = machine.to_outside(machine.evaluate(node, scope))
        except Unsupported:
            value = text_of(node)
        parts.append(str(value))
    return "".join(parts)


def _comparing_check(machine: Machine, name: str, arguments: Node, scope: Scope, node: Node) -> None:
    values = values_of(machine, arguments, scope)[:2]
    if len(values) < 2:
        raise machine.unsupported("check of fewer than two values", node)
    if not machine.truth(combine(machine, _COMPARING[name], values[0], values[1], node), node):
        raise HostError(f"check failed: {text_of(node)[:120]}, line {node.line}")
