"""Values that host code builds: casts, constructors, tensor options."""

from __future__ import annotations

import re
from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_convert import as_dim3
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    Address,
    Closure,
    Device,
    Dim3,
    Dtype,
    FunctionRef,
    KernelRef,
    Num,
    Opaque,
    Options,
    Pointer,
    Scope,
)

_LIST_LIMIT = 1 << 20
_GUARDS = re.compile(
    r"(?:at|c10|torch)::(?:cuda::)?(?:Optional)?(?:CUDA|Device|CUDAStream)Guard|CUDAGuard|DeviceGuard"
)


def is_templated_type(name: str) -> bool:
    return name in (
        "std::vector",
        "vector",
        "std::array",
        "std::tuple",
        "std::pair",
        "std::optional",
        "c10::optional",
    )


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


def default(machine: Machine, ctype: CType, node: Node) -> Any:
    """The value of a variable declared without an initialiser."""
    kind = types.KINDS.get(ctype.base) if not ctype.stars else None
    if kind:
        return Num(0, kind)
    if ctype.stars or ctype.base.endswith("Tensor") or "optional" in ctype.base:
        return None
    return construct(machine, str(ctype), [], None, node)


def construct(machine: Machine, name: str, value: Any, scope: Scope | None, node: Node) -> Any:
    """``T(a, b)`` / ``T{a, b}`` for the types that host code builds."""
    ctype = machine.type_of(name, scope) if scope is not None else parse_type(name)
    args = value if isinstance(value, list) else [value]
    base = ctype.base
    if ctype.stars or base in types.KINDS:
        if len(args) > 1:
            raise machine.unsupported(f"{name} of several values", node)
        return cast(machine, args[0], ctype, node) if args else default(machine, ctype, node)
    if base == "dim3":
        return as_dim3(args, node) if args else Dim3()
    if (
        base.startswith(("std::vector", "vector<", "std::array"))
        or base.endswith("IntArrayRef")
        or "ArrayRef<" in base
    ):
        return _vector(machine, base, args, node)
    if base.startswith(("std::tuple", "std::pair")):
        return tuple(args)
    if base.endswith("TensorOptions"):
        return options_from(machine, args, node)
    if base.endswith("Tensor") or "optional" in base:
        return args[0] if args else None
    if base in ("std::string", "string"):
        return args[0] if args else ""
    if _GUARDS.fullmatch(base) or base.startswith("cuda") or base.endswith("CUDAStream"):
        return args[0] if len(args) == 1 and isinstance(args[0], Opaque) else Opaque(base)
    if base.endswith("::Device"):
        return args[0] if args and isinstance(args[0], Device) else Device("cuda")
    if base in ("auto", "") and len(args) == 1:
        return args[0]
    if base.endswith("ScalarType") and len(args) == 1:
        return args[0]
    raise machine.unsupported(f"type {base!r} in host code", node)


def _vector(machine: Machine, base: str, args: list[Any], node: Node) -> list[Any]:
    if len(args) == 1 and isinstance(args[0], list):
        return list(args[0])
    element = parse_type(base[base.index("<") + 1 : -1]) if "<" in base else CType("int64_t")
    braces = node.type == "initializer_list" or node.type == "compound_literal_expression"
    if (
        not braces
        and 1 <= len(args) <= 2
        and isinstance(args[0], Num)
        and base.startswith(("std::vector", "vector"))
    ):
        count = int(args[0].value)
        if not 0 <= count <= _LIST_LIMIT:
            raise machine.unsupported(f"vector of {count} elements", node)
        kind = types.KINDS.get(element.base) if not element.stars else None
        filled = args[1] if len(args) > 1 else (Num(0, kind) if kind else None)
        return [filled] * count
    return [machine.convert(a, element, node) for a in args]


def options_from(machine: Machine, args: list[Any], node: Node) -> Options:
    result = Options()
    for arg in args:
        if isinstance(arg, Options):
            result = result.having(**dict(arg.values))
        elif isinstance(arg, Dtype):
            result = result.having(dtype=arg)
        elif isinstance(arg, Device):
            result = result.having(device=arg)
        elif machine.is_tensor(arg):
            result = result.having(**dict(tensor_options(machine, arg).values))
        elif not isinstance(arg, Opaque):
            raise machine.unsupported("tensor options in this form", node)
    return result


def tensor_options(machine: Machine, tensor: Any) -> Options:
    dtype = machine.world("tensor_method", tensor, "scalar_type", [], None)
    return Options((("dtype", dtype), ("device", machine.world("tensor_method", tensor, "device", [], None))))
