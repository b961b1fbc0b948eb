"""What host code may call that is not in the file: C and C++ library, CUDA runtime, torch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tree_sitter import Node

from dice_engine.source import host_types as types
from dice_engine.source.host_lex import plain_text, split_commas, tokenize
from dice_engine.source.host_machine import Machine, as_dim3
from dice_engine.source.host_types import CType, parse_type
from dice_engine.source.host_values import (
    Address,
    Cell,
    Device,
    Dim3,
    Dtype,
    HostError,
    Num,
    Opaque,
    Options,
    Pointer,
    Scope,
    TensorKind,
    Unsupported,
)

TENSOR_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_LIST_LIMIT = 1 << 20
_TORCH_SPACES = ("torch::", "at::")
_GUARDS = re.compile(
    r"(?:at|c10|torch)::(?:cuda::)?(?:Optional)?(?:CUDA|Device|CUDAStream)Guard|CUDAGuard|DeviceGuard"
)
_IGNORED = {
    "cudaFuncSetAttribute", "cudaFuncSetCacheConfig", "cudaGetLastError", "cudaPeekAtLastError", "cudaDeviceSynchronize",
    "cudaStreamSynchronize", "cudaSetDevice", "cudaFree", "cudaFreeAsync", "printf", "fprintf", "std::printf", "fflush",
    "C10_CUDA_KERNEL_LAUNCH_CHECK", "TORCH_WARN", "TORCH_WARN_ONCE", "cudaDeviceSetLimit", "cudaDeviceSetCacheConfig",
    "cudaStreamDestroy", "cudaEventDestroy", "std::fflush", "puts", "static_assert", "AT_CUDA_KERNEL_LAUNCH_CHECK",
    "RECORD_FUNCTION", "cudaFuncSetSharedMemConfig", "cudaThreadSynchronize", "CUDA_KERNEL_LOOP_CHECK",
}  # fmt: skip
_STREAMS = {"getCurrentCUDAStream", "getDefaultCUDAStream"}
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
_LIKE = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"}
_NUMBERS = {
    "INT_MAX": Num(2**31 - 1, "int32"),
    "INT_MIN": Num(-(2**31), "int32"),
    "UINT_MAX": Num(2**32 - 1, "uint32"),
    "FLT_MAX": Num(3.4028234663852886e38, "float32"),
    "FLT_MIN": Num(1.1754943508222875e-38, "float32"),
    "FLT_EPSILON": Num(1.1920928955078125e-07, "float32"),
    "DBL_MAX": Num(1.7976931348623157e308, "float64"),
    "INFINITY": Num(math.inf, "float32"),
    "NAN": Num(math.nan, "float32"),
    "M_PI": Num(math.pi, "float64"),
    "M_SQRT1_2": Num(math.sqrt(0.5), "float64"),
    "M_2_SQRTPI": Num(2 / math.sqrt(math.pi), "float64"),
    "cudaSuccess": Num(0, "int32"),
    "NULL": Cell(None),
    "nullptr": Cell(None),
    "c10::nullopt": Cell(None),
    "at::nullopt": Cell(None),
    "std::nullopt": Cell(None),
    "torch::nullopt": Cell(None),
}
_MATH: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2, "log10": math.log10, "pow": math.pow,
    "ceil": math.ceil, "floor": math.floor, "fabs": abs, "round": lambda x: math.floor(abs(x) + 0.5) * math.copysign(1, x),
    "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "exp2": lambda x: 2.0**x, "fmax": max, "fmin": min, "fmod": math.fmod,
    "rsqrt": lambda x: 1 / math.sqrt(x), "trunc": math.trunc, "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
}  # fmt: skip


def constant(name: str) -> Any:
    """A name that headers define, or None. A ``Cell`` stands for a known null."""
    short = name.rsplit("::", 1)[-1]
    if name in _NUMBERS:
        return _NUMBERS[name]
    if short in types.TORCH_CONSTANTS and (name == short or name.startswith(("torch::", "at::", "c10::"))):
        return Dtype(types.TORCH_CONSTANTS[short])
    scalar = re.fullmatch(
        r"(?:torch|at|c10)::(?:ScalarType::)?(Float|Double|Half|BFloat16|Int|Long|Short|Byte|Char|Bool)", name
    )
    if scalar and "ScalarType" in name:
        return Dtype(types.TORCH_CONSTANTS[f"k{scalar.group(1)}"])
    if short in ("kCUDA", "kCPU") or name.endswith(("DeviceType::CUDA", "DeviceType::CPU")):
        return Device("cuda" if short.endswith("CUDA") else "cpu")
    if name.startswith(
        ("cuda", "std::cout", "std::cerr", "stdout", "stderr", "torch::kStrided", "at::MemoryFormat")
    ):
        return Opaque(name)
    if name.startswith("torch::MemoryFormat") or name.startswith("c10::MemoryFormat"):
        return Opaque(name)
    return None


def template_constant(name: str, arguments: tuple[str, ...]) -> Any:
    return None


def words(text: str) -> list[str]:
    return [t.text for t in tokenize(text)[:-1]]


def split_arguments(text: str) -> list[str]:
    return [plain_text(part) for part in split_commas(tokenize(text)[:-1])]


def is_stream_output(text: str) -> bool:
    return text.startswith(("std::cout", "std::cerr", "cout", "cerr"))


def is_ignored(name: str) -> bool:
    return name in _IGNORED


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
        raise HostError(f"{name}() of an undefined tensor or empty optional, line {node.start_point[0] + 1}")
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
            raise HostError(
                f"index {index} outside a host array of {len(owner)}, line {node.start_point[0] + 1}"
            )
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
    short = name.rsplit("::", 1)[-1]
    plain = name.removeprefix("std::")
    if (
        (plain in ("min", "max")
        and all(isinstance(a, Num) for a in args))
        or (plain in ("min", "max") and template)
    ):
        return _extreme(machine, plain, template, args, node)
    if plain in ("make_tuple", "make_pair", "tuple", "forward_as_tuple"):
        return tuple(args)
    if plain in ("move", "forward", "ref", "cref", "as_const", "unwrap") and len(args) == 1:
        return args[0]
    if plain == "get" and template and args and isinstance(args[0], (tuple, list)) and template[0].isdigit():
        index = int(template[0])
        if index < len(args[0]):
            return args[0][index]
    if plain == "swap":
        raise machine.unsupported("std::swap", node)
    if plain in ("to_string", "c10::str") and args:
        return str(machine.to_outside(args[0]))
    if plain == "abs" and args and isinstance(args[0], Num):
        return Num(abs(args[0].value), types.promoted(args[0].kind))
    if plain.startswith("numeric_limits<") or short in ("infinity", "lowest", "epsilon", "quiet_NaN"):
        return _limits(machine, name, short, scope, node)
    root = plain[:-1] if plain.endswith("f") and plain[:-1] in _MATH else plain
    if root in _MATH and args and all(isinstance(a, Num) for a in args):
        return _math(machine, root, plain, args, node)
    if short == "next_power_of_2" or plain in (
        "ceil_div",
        "at::ceil_div",
        "cuda::ATenCeilDiv",
        "at::cuda::ATenCeilDiv",
    ):
        if len(args) == 2 and all(isinstance(a, Num) for a in args):
            one = Num(1, "int32")
            raised = types.binary("-", types.binary("+", args[0], args[1]), one)
            return types.binary("/", raised, args[1])
    return torch.call(machine, name, template, args, scope, node)


def _extreme(machine: Machine, name: str, template: tuple[str, ...], args: list[Any], node: Node) -> Any:
    values = args[0] if len(args) == 1 and isinstance(args[0], list) else args
    if not values or not all(isinstance(v, Num) for v in values):
        raise machine.unsupported(f"std::{name} of these values", node)
    kind = types.KINDS.get(template[0]) if template else None
    if kind is None:
        kind = values[0].kind
        for other in values[1:]:
            kind = kind if kind == other.kind else types.common(kind, other.kind)
    converted = [types.convert(v, kind) for v in values]
    return (min if name == "min" else max)(converted, key=lambda v: v.value)


def _math(machine: Machine, root: str, name: str, args: list[Num], node: Node) -> Num:
    single = (name.endswith("f") and root != name) or all(a.kind == "float32" for a in args)
    try:
        value = float(_MATH[root](*(float(a.value) for a in args)))
    except (ValueError, OverflowError, ZeroDivisionError, TypeError):
        raise machine.unsupported(f"{name} has no finite value here", node) from None
    return types.convert(Num(value, "float64"), "float32" if single else "float64")


def _limits(machine: Machine, name: str, short: str, scope: Scope, node: Node) -> Num:
    match = re.search(r"numeric_limits<(.+)>", name)
    kind = types.KINDS.get(machine.type_of(match.group(1), scope).base) if match else None
    if kind == "float32":
        top = _NUMBERS["FLT_MAX"].value
        values = {
            "infinity": math.inf,
            "max": top,
            "lowest": -top,
            "min": 2.0**-126,
            "epsilon": 2.0**-23,
            "quiet_NaN": math.nan,
        }
        if short in values:
            return Num(values[short], kind)
    elif kind == "float64":
        top = _NUMBERS["DBL_MAX"].value
        values = {"infinity": math.inf, "max": top, "lowest": -top, "min": 2.0**-1022, "epsilon": 2.0**-52}
        if short in values:
            return Num(values[short], kind)
    elif kind is not None and not types.is_float(kind) and short in ("max", "min", "lowest"):
        bits = types.SIZES[kind] * 8
        unsigned = kind.startswith("u")
        return Num(
            2 ** (bits - (not unsigned)) - 1 if short == "max" else (0 if unsigned else -(2 ** (bits - 1))),
            kind,
        )
    raise machine.unsupported(f"{name}()", node)


__all__ = ["Pointer", "Unsupported"]

from dice_engine.source import host_torch as torch  # noqa: E402
from dice_engine.source.host_eval import cast  # noqa: E402
