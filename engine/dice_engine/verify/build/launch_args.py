"""Pack plain launch arguments by the C types that a kernel declares, template bindings resolved."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from dice_engine.source.host_parse import KernelDecl
from dice_engine.source.host_types import KINDS, parse_type
from dice_engine.verify.build.interface import LaunchError

_CTYPES = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


def bindings(decl: KernelDecl, template_args: Sequence[str]) -> dict[str, str]:
    """Template parameter -> argument, defaults filled in."""
    bound = dict(zip((p.name for p in decl.template_params), template_args, strict=False))
    for param in decl.template_params:
        if param.name not in bound and param.default is not None:
            bound[param.name] = bound.get(param.default, param.default)
    return bound


def pack(
    decl: KernelDecl,
    template_args: Sequence[str],
    args: Sequence[int | float],
    aliases: dict[str, str] | None = None,
) -> list[ctypes._SimpleCData]:
    """One ctypes value for each parameter of ``decl``, of the size and format that the kernel reads.

    ``aliases`` are the source's simple type aliases (``DeviceSource.aliases``). Half and bfloat16 values become
    their 16 bits. Raises LaunchError when the count differs, a value does not fit its type, or a type is unknown.
    """
    if len(args) != len(decl.params):
        raise LaunchError(
            "cudaErrorInvalidValue",
            f"kernel {decl.name} has {len(decl.params)} parameters, got {len(args)} arguments",
        )
    bound = bindings(decl, template_args)
    packed = []
    for param, value in zip(decl.params, args, strict=True):
        kind = "uint64" if param.pointer else _kind(param.ctype, bound, aliases or {})
        if kind is None:
            raise LaunchError(
                "cudaErrorInvalidValue",
                f"kernel {decl.name}: cannot pass {param.name} of type {param.ctype} by value",
            )
        packed.append(_value(decl.name, param.name, kind, value))
    return packed


def _kind(ctype: str, bound: dict[str, str], aliases: dict[str, str]) -> str | None:
    for _ in range(16):  # aliases of aliases, never a loop
        if ctype in bound:
            ctype = str(parse_type(bound[ctype]))
        elif ctype in aliases:
            ctype = str(parse_type(aliases[ctype]))
        elif ctype.endswith("*"):
            return "uint64"
        else:
            break
    return KINDS.get(ctype)


def _value(kernel: str, name: str, kind: str, value: int | float) -> ctypes._SimpleCData:
    if kind == "float16":
        return ctypes.c_uint16(int.from_bytes(_half(float(value)), "little"))
    if kind == "bfloat16":
        return ctypes.c_uint16(_bfloat16(float(value)))
    if kind == "bool":
        return ctypes.c_bool(bool(value))
    if kind.startswith("float"):
        return _CTYPES[kind](float(value))
    whole = int(value)
    packed = _CTYPES[kind](whole)
    # C wraps: -1 given to an unsigned parameter is its largest value, as a launch in the source would pass.
    if not -(1 << 63) <= whole < (1 << 64):
        raise LaunchError(
            "cudaErrorInvalidValue", f"kernel {kernel}: {name} = {whole} does not fit in 64 bits"
        )
    return packed


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", float("inf") if value > 0 else float("-inf"))


def _bfloat16(value: float) -> int:
    bits = struct.unpack("<I", struct.pack("<f", ctypes.c_float(value).value))[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40  # a quiet NaN stays one
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
