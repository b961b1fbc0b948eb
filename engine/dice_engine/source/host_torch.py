"""torch and CUDA runtime calls of host code, handed on to the ``Runtime``."""

from __future__ import annotations

from typing import Any

from dice_engine.source import host_types as types
from dice_engine.source.host_construct import options_from, tensor_options
from dice_engine.source.host_machine import Machine
from dice_engine.source.host_tree import Node
from dice_engine.source.host_types import parse_type
from dice_engine.source.host_values import (
    Address,
    Cell,
    Device,
    Dtype,
    Num,
    Opaque,
    Options,
    Pointer,
    TensorKind,
)

_FACTORIES = {
    "empty",
    "zeros",
    "ones",
    "full",
    "rand",
    "randn",
    "arange",
    "empty_strided",
    "tensor",
    "eye",
    "linspace",
}
_SIZED = {"empty", "zeros", "ones", "full", "rand", "randn"}
_LIKE = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"}
_SPACES = ("torch::", "at::", "c10::")
_RENAMED = {
    "data": "data_ptr",
    "mutable_data_ptr": "data_ptr",
    "const_data_ptr": "data_ptr",
    "ndimension": "dim",
    "dtype": "scalar_type",
}
_DETACHED = {"sizes", "strides"}


def tensor_method(
    machine: Machine, tensor: Any, name: str, args: list[Any], template: str | None, node: Node
) -> Any:
    if name == "options":
        return tensor_options(machine, tensor)
    if name == "type" and not args:
        return TensorKind(tensor)
    if name in ("value", "unwrap") and not args:
        return tensor
    if name in ("defined", "has_value") and not args:
        return Num(True, "bool")
    if name == "value_or":
        return tensor
    if name.startswith("new_"):
        options = tensor_options(machine, tensor)
        given = [a for a in args if isinstance(a, Options)]
        rest = [a for a in args if not isinstance(a, Options)]
        return _function(machine, name.removeprefix("new_"), rest, given or [options], node)
    if any(isinstance(a, Options) for a in args):
        args = [v for a in args for v in ([x for _, x in a.values] if isinstance(a, Options) else [a])]
    if name in (
        "accessor",
        "packed_accessor",
        "packed_accessor32",
        "packed_accessor64",
        "generic_packed_accessor",
    ):
        raise machine.unsupported(f"{name} in host code", node)
    plain = [machine.to_outside(a) for a in args if not isinstance(a, Opaque)]
    result = machine.world("tensor_method", tensor, _RENAMED.get(name, name), plain, template)
    if name in _DETACHED and isinstance(result, (list, tuple)):
        return list(result)
    return result


def options_method(machine: Machine, options: Options, name: str, args: list[Any], node: Node) -> Any:
    if not args and name in ("dtype", "device"):
        return dict(options.values).get(name)
    if name in ("dtype", "device") and args:
        value = args[0]
        if isinstance(value, TensorKind):
            value = machine.world("tensor_method", value.tensor, "scalar_type", [], None)
        if isinstance(value, str):
            value = Device(value.split(":")[0])
        if not isinstance(value, (Dtype, Device)):
            raise machine.unsupported(f"options.{name}() of this value", node)
        return options.having(**{name: value})
    if name in ("requires_grad", "layout", "memory_format", "pinned_memory", "device_index"):
        return options
    raise machine.unsupported(f"options.{name}()", node)


def call(machine: Machine, name: str, args: list[Any], node: Node) -> Any:
    short = name.rsplit("::", 1)[-1]
    if short in ("getCurrentCUDAStream", "getDefaultCUDAStream", "getStreamFromPool"):
        return Opaque("stream")
    if short in ("getCurrentDeviceProperties", "getDeviceProperties"):
        return Opaque("properties")
    if name in ("device_of", "at::device_of", "c10::device_of") and args:
        return (
            machine.world("tensor_method", args[0], "device", [], None)
            if machine.is_tensor(args[0])
            else None
        )
    if short in ("current_device", "get_device") and name.startswith(_SPACES) and not args:
        return Num(0, "int32")
    if name.startswith("cuda"):
        return _cuda(machine, name, args, node)
    if name.startswith(_SPACES) or short in _FACTORIES | _LIKE:
        space = name
        for prefix in _SPACES:
            space = space.removeprefix(prefix)
        if space in ("dtype", "device", "TensorOptions"):
            return options_from(machine, args, node)
        if short in ("toString", "str"):
            return str(machine.to_outside(args[0])) if args else ""
        if short == "elementSize" and args and isinstance(args[0], Dtype):
            return Num(types.SIZES.get(args[0].name, 0), "uint64")
        rest = [a for a in args if not isinstance(a, (Options, Opaque))]
        options: list[Any] = [a for a in args if isinstance(a, Options)]
        if space in _FACTORIES | _LIKE:
            options += [a for a in rest if isinstance(a, (Dtype, Device))]
            rest = [a for a in rest if not isinstance(a, (Dtype, Device))]
        return _function(machine, space.replace("::", "."), rest, options, node)
    raise machine.unsupported(f"unknown function {name!r}", node)


def _function(machine: Machine, name: str, args: list[Any], options: list[Any], node: Node) -> Any:
    if name in _SIZED and args and isinstance(args[0], Num):
        args = [[args[0]], *args[1:]]  # an IntArrayRef may be given as one number
    merged = options_from(machine, options, node)
    keywords = {key: machine.to_outside(value) for key, value in merged.values}
    return machine.world("torch_function", name, [machine.to_outside(a) for a in args], keywords)


def _cuda(machine: Machine, name: str, args: list[Any], node: Node) -> Any:
    success = Num(0, "int32")
    target = args[0].place if args and isinstance(args[0], Address) else None
    if (
        name in ("cudaMalloc", "cudaMallocAsync")
        and target is not None
        and len(args) > 1
        and isinstance(args[1], Num)
    ):
        held = machine.world(
            "torch_function",
            "empty",
            [[int(args[1].value)]],
            {"dtype": Dtype("uint8"), "device": Device("cuda")},
        )
        declared = parse_type(target.ctype) if isinstance(target, Cell) and target.ctype else None
        element = declared.element if declared is not None and declared.stars else "unsigned char"
        target.set(Pointer(held, 0, element))
        return success
    if name in ("cudaMemset", "cudaMemsetAsync") and len(args) >= 3 and isinstance(args[0], Pointer):
        machine.world("torch_function", "cuda.memset", [machine.to_outside(a) for a in args[:3]], {})
        return success
    if name in ("cudaMemcpy", "cudaMemcpyAsync") and len(args) >= 4:
        if isinstance(args[0], Pointer) and isinstance(args[1], Pointer):
            machine.world("torch_function", "cuda.memcpy", [machine.to_outside(a) for a in args[:3]], {})
            return success
        raise machine.unsupported(f"{name} between host and device", node)
    if name in ("cudaGetDevice", "cudaGetDeviceCount") and target is not None:
        target.set(Num(0 if name == "cudaGetDevice" else 1, "int32"))
        return success
    if name == "cudaStreamCreate" and target is not None:
        target.set(Opaque("stream"))
        return success
    if name == "cudaGetDeviceProperties" and target is not None:
        target.set(Opaque("properties"))
        return success
    if (
        name == "cudaDeviceGetAttribute"
        and target is not None
        and len(args) > 1
        and isinstance(args[1], Opaque)
    ):
        attribute = args[1].what.removeprefix("cudaDevAttr")
        target.set(
            machine.world(
                "torch_function", "cuda.device_property", [attribute[:1].lower() + attribute[1:]], {}
            )
        )
        return success
    if name == "cudaGetErrorString":
        return "no error"
    raise machine.unsupported(f"{name} in host code", node)
