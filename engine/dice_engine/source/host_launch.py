"""Launches: ``kernel<<<grid, block, shared, stream>>>(...)``, ``cudaLaunchKernel``, and type dispatch around them."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_convert import as_dim3, text_of, type_of_value
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_signature import deduce, explicit_bindings
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import CType
from dice_engine.source.host_values import (
    Address,
    Cell,
    Closure,
    Dtype,
    HostError,
    KernelRef,
    LaunchCall,
    Num,
    Pointer,
    Scope,
    TensorKind,
)

_FLOATING = ("float64", "float32")
_INTEGRAL = ("uint8", "int8", "int32", "int64", "int16")
_DISPATCH_BASE = {
    "FLOATING_TYPES": _FLOATING,
    "INTEGRAL_TYPES": _INTEGRAL,
    "ALL_TYPES": _INTEGRAL + _FLOATING,
    "REDUCED_FLOATING_TYPES": ("float16", "bfloat16"),
}
_SCALAR_TYPES = {
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int64": "int64_t",
}


def triple_chevron(
    machine: Machine, target: Any, node: Node, syntax: Node, arguments: list[Any], scope: Scope
) -> None:
    """Issue ``target<<<...>>>(arguments)``; ``syntax`` is the part between the chevrons."""
    kernel = as_kernel(target)
    if kernel is None:
        raise machine.unsupported("launch of something that is no kernel of this file", node)
    geometry = [machine.evaluate(c, scope) for c in syntax.named_children]
    if not 2 <= len(geometry) <= 4:
        raise machine.unsupported("launch without grid and block", node)
    shared = geometry[2] if len(geometry) > 2 else Num(0, "int32")
    issue(machine, kernel, geometry[0], geometry[1], shared, arguments, scope, node)


def as_kernel(value: Any) -> KernelRef | None:
    if isinstance(value, Address):
        value = value.place.get()
    return value if isinstance(value, KernelRef) else None


def launch_kernel(machine: Machine, args: list[Any], scope: Scope, node: Node) -> Num:
    """``cudaLaunchKernel(kernel, grid, block, args, shared, stream)``: args is an array of addresses."""
    kernel = as_kernel(args[0]) if args else None
    if kernel is None or len(args) < 4 or not isinstance(args[3], list):
        raise machine.unsupported("cudaLaunchKernel in this form", node)
    if not all(isinstance(a, Address) for a in args[3]):
        raise machine.unsupported("cudaLaunchKernel arguments that are no addresses", node)
    shared = args[4] if len(args) > 4 else Num(0, "int32")
    issue(machine, kernel, args[1], args[2], shared, [a.place.get() for a in args[3]], scope, node)
    return Num(0, "int32")


def issue(
    machine: Machine,
    kernel: KernelRef,
    grid: Any,
    block: Any,
    shared: Any,
    arguments: list[Any],
    scope: Scope,
    node: Node,
) -> None:
    declared = machine.program.kernels[kernel.name]
    if len(arguments) != len(declared.params):
        raise machine.unsupported(
            f"{kernel.name} takes {len(declared.params)} arguments, the launch gives {len(arguments)}", node
        )
    template_args: tuple[str, ...] = ()
    if declared.template_params:
        given = [type_of_value(a) for a in arguments]
        known = explicit_bindings(declared.template_params, kernel.template_args)
        deduced = deduce(declared.template_params, known, declared.params, given)
        if deduced is None:
            raise machine.unsupported(f"template arguments of {kernel.name} are not known", node)
        template_args = deduced
    bound = Scope(scope)
    for param, value in zip(declared.template_params, template_args, strict=True):
        if param.kind == "type":
            bound.types[param.name] = value
        else:
            bound.cells[param.name] = Cell(machine.evaluate_text(value, scope))
    plain = []
    for param, value in zip(declared.params, arguments, strict=True):
        ctype = machine.resolve(CType(param.ctype, int(param.pointer)), bound)
        plain.append(_argument(machine, kernel.name, param.name, ctype, value, node))
    if not isinstance(shared, Num):
        raise machine.unsupported("shared memory size that is no number", node)
    call = LaunchCall(
        kernel.name,
        template_args,
        as_dim3(grid, node).as_tuple(),
        as_dim3(block, node).as_tuple(),
        int(shared.value),
        tuple(plain),
    )
    if 0 in call.grid or 0 in call.block:
        raise HostError(
            f"launch of {kernel.name} with grid {call.grid} and block {call.block}: a dimension is zero"
        )
    machine.world("launch", call)


def _argument(machine: Machine, kernel: str, name: str, ctype: CType, value: Any, node: Node) -> Any:
    if ctype.stars:
        if value is None or (isinstance(value, Num) and value.value == 0):
            return None
        if isinstance(value, Pointer):
            return value
        raise machine.unsupported(f"argument {name!r} of {kernel} is no device pointer", node)
    if isinstance(value, Num):
        kind = types.KINDS.get(ctype.base)
        if kind is not None:
            return types.convert(value, kind).value
        if types.size_of(ctype.base) is None:
            return value.value
    raise machine.unsupported(f"argument {name!r} of {kernel} is passed by value as {ctype}", node)


def is_dispatch(name: str) -> bool:
    return name.startswith("AT_DISPATCH_")


def dispatch(machine: Machine, name: str, arguments: Node, scope: Scope) -> Any:
    """``AT_DISPATCH_FLOATING_TYPES_AND2(k1, k2, type, "name", [&] {...})``: run the lambda with ``scalar_t`` bound."""
    form = name.removeprefix("AT_DISPATCH_")
    base, _, extra = form.partition("_AND")
    if base not in _DISPATCH_BASE or "COMPLEX" in extra or "_C10_" in form:
        raise machine.unsupported(f"{name} in host code", arguments)
    nodes = arguments.named_children
    count = 0
    allowed = list(_DISPATCH_BASE[base])
    if extra == "_HALF":
        allowed.append("float16")
    elif extra:
        count = int(extra) if extra.isdigit() else 0
    elif form.endswith("_AND"):
        count = 1
    if len(nodes) != count + 3:
        raise machine.unsupported(f"{name} with {len(nodes)} arguments", arguments)
    for node in nodes[:count]:
        named = machine.evaluate(node, scope)
        if isinstance(named, Dtype):
            allowed.append(named.name)
    chosen = machine.evaluate(nodes[count], scope)
    if isinstance(chosen, TensorKind):
        chosen = machine.world("tensor_method", chosen.tensor, "scalar_type", [], None)
    if not isinstance(chosen, Dtype):
        raise machine.unsupported(f"{name} over something else than a dtype", arguments)
    if chosen.name not in allowed:
        label = text_of(nodes[count + 1]).strip('"')
        raise HostError(
            f'"{label}" not implemented for {types.TORCH_SCALARS.get(chosen.name, chosen.name)!r}'
        )
    body = machine.evaluate(nodes[count + 2], scope)
    if not isinstance(body, Closure):
        raise machine.unsupported(f"{name} without a lambda", arguments)
    inner = body.scope.inner()
    inner.types["scalar_t"] = _SCALAR_TYPES.get(chosen.name, types.C_NAMES[chosen.name])
    return machine.run_closure(Closure(body.node, inner), [], arguments)
