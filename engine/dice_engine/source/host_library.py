"""What host code may call that is not in the file: members of library types, library functions."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_math
from dice_engine.source import host_torch as torch
from dice_engine.source import host_types as types
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_values import (
    Address,
    Device,
    Dim3,
    Dtype,
    HostError,
    Num,
    Opaque,
    Options,
    Scope,
    TensorKind,
)

_LIST_LIMIT = 1 << 20
_IGNORED = {
    "cudaFuncSetAttribute", "cudaFuncSetCacheConfig", "cudaGetLastError", "cudaPeekAtLastError",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize", "cudaSetDevice", "cudaFree", "cudaFreeAsync", "printf", "fprintf", "std::printf", "fflush",
    "C10_CUDA_KERNEL_LAUNCH_CHECK", "TORCH_WARN", "TORCH_WARN_ONCE", "cudaDeviceSetLimit", "cudaDeviceSetCacheConfig",
    "cudaStreamDestroy", "cudaEventDestroy", "std::fflush", "puts", "static_assert", "AT_CUDA_KERNEL_LAUNCH_CHECK",
    "RECORD_FUNCTION", "cudaFuncSetSharedMemConfig", "cudaThreadSynchronize", "CUDA_KERNEL_LOOP_CHECK",
}  # fmt: skip


def is_ignored(name: str) -> bool:
    return name in _IGNORED


def member(machine: Machine, owner: Any, name: str, node: Node) -> Any:
    """A data member."""
    if isinstance(owner, Address):
        owner = owner.place.get()
    if isinstance(owner, Dim3) and name in ("x", "y", "z"):
        return Num(getattr(owner, name), "uint32")
    if isinstance(owner, tuple) and name in ("first", "second") and len(owner) == 2:
        return owner[name == "second"]
    if isinstance(owner, Opaque) and owner.what in ("properties", "cudaDeviceProp"):
        return machine.world("torch_function", "cuda.device_property", [name], {})
    raise machine.unsupported(f"member {name!r}", node)


def method(machine: Machine, owner: Any, name: str, args: list[Any], template: str | None, node: Node) -> Any:
    """A member function."""
    if isinstance(owner, Address):
        owner = owner.place.get()
    if machine.is_tensor(owner):
        return torch.tensor_method(machine, owner, name, args, template, node)
    if name in ("has_value", "defined") and owner is None:
        return Num(False, "bool")
    if name == "value_or" and owner is None and args:
        return args[0]
    if name in ("value", "data_ptr", "size", "numel") and owner is None:
        raise HostError(f"{name}() of an undefined tensor or empty optional, line {node.line}")
    if isinstance(owner, (list, tuple)):
        return _list_method(machine, owner, name, args, node)
    if isinstance(owner, Options):
        return torch.options_method(machine, owner, name, args, node)
    if isinstance(owner, TensorKind):
        if name in ("is_cuda", "scalarType"):
            asked = "is_cuda" if name == "is_cuda" else "scalar_type"
            return machine.world("tensor_method", owner.tensor, asked, [], None)
    elif isinstance(owner, Device):
        if name in ("is_cuda", "is_cpu"):
            return Num(owner.type == name[3:], "bool")
        if name == "index":
            return Num(owner.index, "int32")
        if name == "type":
            return Device(owner.type)
    elif isinstance(owner, Dtype):
        if name in ("toScalarType",):
            return owner
        if name == "itemsize":
            return Num(types.SIZES.get(owner.name, 0), "uint64")
    elif isinstance(owner, Opaque):
        if name in ("stream", "id", "device_index", "unwrap"):
            return owner if name in ("stream", "unwrap") else Num(0, "int32")
        if name == "synchronize":
            return None
    elif isinstance(owner, str) and name in ("c_str", "data"):
        return owner
    elif isinstance(owner, Num) and name in (
        "has_value",
        "value",
        "value_or",
        "to",
        "toFloat",
        "toDouble",
        "toInt",
    ):
        return Num(True, "bool") if name == "has_value" else owner
    raise machine.unsupported(f"method {name!r}", node)


def _list_method(machine: Machine, owner: Any, name: str, args: list[Any], node: Node) -> Any:
    if name in ("size", "length"):
        return Num(len(owner), "uint64")
    if name == "empty":
        return Num(not owner, "bool")
    if name in ("vec", "data", "begin"):
        return owner if name == "data" else list(owner)
    if name in ("at", "front", "back"):
        index = {"front": 0, "back": len(owner) - 1}.get(
            name, args[0].value if args and isinstance(args[0], Num) else -1
        )
        if not 0 <= index < len(owner):
            raise HostError(f"index {index} outside a host array of {len(owner)}, line {node.line}")
        return owner[int(index)]
    if (
        name in ("push_back", "emplace_back")
        and isinstance(owner, list)
        and len(args) == 1
        and len(owner) < _LIST_LIMIT
    ):
        owner.append(args[0])
        return None
    if name in ("reserve", "clear") and isinstance(owner, list):
        if name == "clear":
            owner.clear()
        return None
    if name in ("equals",) and args and isinstance(args[0], (list, tuple)):
        return Num(list(owner) == list(args[0]), "bool")
    raise machine.unsupported(f"method {name!r} of a list", node)


def call(
    machine: Machine, name: str, template: tuple[str, ...], args: list[Any], scope: Scope, node: Node
) -> Any:
    """A function that is not of the file."""
    plain = name.removeprefix("std::")
    if plain in ("make_tuple", "make_pair", "tuple", "forward_as_tuple"):
        return tuple(args)
    if plain in ("move", "forward", "ref", "cref", "as_const") and len(args) == 1:
        return args[0]
    if plain == "get" and template and template[0].isdigit() and args and isinstance(args[0], (tuple, list)):
        index = int(template[0])
        if index < len(args[0]):
            return args[0][index]
    if plain in ("to_string", "c10::str") and args:
        return str(machine.to_outside(args[0]))
    number = host_math.call(machine, name, template, args, scope, node)
    return number if number is not None else torch.call(machine, name, args, node)
