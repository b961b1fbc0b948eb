"""C types and C arithmetic: what a declared name means, how numbers convert, wrap and divide."""

from __future__ import annotations

import functools
import math
import re
import struct
from dataclasses import dataclass

from dice_engine.source.host_values import HostError, Num, Unsupported

_KIND_NAMES = {
    "bool": "bool",
    "int8": "signed char|int8_t|char|std::int8_t",
    "uint8": "unsigned char|uint8_t|uchar|std::uint8_t|std::byte",
    "int16": "short|short int|int16_t|std::int16_t",
    "uint16": "unsigned short|unsigned short int|uint16_t|ushort|std::uint16_t",
    "int32": "int|signed|signed int|int32_t|std::int32_t",
    "uint32": "unsigned int|unsigned|uint32_t|uint|std::uint32_t",
    "int64": "long|long int|long long|long long int|int64_t|ptrdiff_t|ssize_t|std::int64_t|std::ptrdiff_t|intptr_t",
    "uint64": "unsigned long|unsigned long int|unsigned long long|unsigned long long int|uint64_t|size_t|std::size_t"
    "|std::uint64_t|uintptr_t|ulong",
    "float16": "half|__half|at::Half|c10::Half",
    "bfloat16": "__nv_bfloat16|nv_bfloat16|at::BFloat16|c10::BFloat16",
    "float32": "float",
    "float64": "double",
}
KINDS = {name: kind for kind, names in _KIND_NAMES.items() for name in names.split("|")}
"""Machine type of every builtin type name."""
C_NAMES = {
    **{kind: names.split("|")[0] for kind, names in _KIND_NAMES.items()},
    "int8": "char",
    "float16": "__half",
}
"""The plain C name of each machine type."""
SIZES = {
    **{k: int(re.sub(r"\D", "", k)) // 8 for k in _KIND_NAMES if k not in ("bool",)},
    "bool": 1,
}
_VECTOR = re.compile(r"(float|double|int|uint|char|uchar|short|ushort|long|ulong|longlong|ulonglong)([1234])")
_VECTOR_UNIT = {"float": 4, "double": 8, "int": 4, "uint": 4, "char": 1, "uchar": 1, "short": 2, "ushort": 2}
_OTHER_SIZES = {
    "half2": 4,
    "__half2": 4,
    "__nv_bfloat162": 4,
    "nv_bfloat162": 4,
    "cuFloatComplex": 8,
    "cuComplex": 8,
}
_DROPPED = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|static|constexpr|inline|typename|struct|class|enum|register"
    r"|extern|__grid_constant__|mutable|__host__|__device__|__forceinline__|__constant__|__inline__)\b"
)
_BARE_NAMES = {
    "int8": "Char",
    "uint8": "Byte",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
}
_BARE_NAMES |= {"float32": "Float", "float64": "Double", "bool": "Bool", "bfloat16": "BFloat16"}
TORCH_CONSTANTS = {f"k{name}": kind for kind, name in _BARE_NAMES.items()} | {
    **{
        f"k{kind.replace('uint', 'UInt').replace('int', 'Int').capitalize()}": kind
        for kind in ("float16", "float32")
    },
    "kFloat64": "float64",
    "kInt8": "int8",
    "kUInt8": "uint8",
    "kInt16": "int16",
    "kInt32": "int32",
    "kInt64": "int64",
}
"""``torch::kFloat32`` and its like -> torch's name of the type."""
TORCH_SCALARS = {k: _BARE_NAMES.get(k, k) for k in _BARE_NAMES}
"""torch's own word for a type in its messages: ``Float``, ``Half``."""


@dataclass(frozen=True)
class CType:
    """A type as written: qualifiers gone, ``const`` kept for what a pointer points to."""

    base: str
    stars: int = 0
    reference: bool = False
    const: bool = False

    @property
    def element(self) -> str:
        """What the outermost pointer points to."""
        return self.base + "*" * max(0, self.stars - 1)

    def __str__(self) -> str:
        return self.base + "*" * self.stars


@functools.lru_cache(maxsize=4096)
def parse_type(text: str) -> CType:
    """Read a type without a declared name: ``const float* __restrict__``, ``unsigned long long&``."""
    const = bool(re.search(r"\bconst\b", text.split("*", 1)[0]))
    text = _DROPPED.sub(" ", text)
    depth = stars = 0
    reference = False
    kept: list[str] = []
    for char in text:
        depth += (char in "<(") - (char in ">)")
        if char == "*" and depth == 0:
            stars += 1
        elif char == "&" and depth == 0:
            reference = True
        else:
            kept.append(char)
    words = re.sub(r"\s*(::|<|>|,)\s*", r"\1", " ".join("".join(kept).split()))
    return CType(normal_name(words.removeprefix("::")), stars, reference, const)


def normal_name(words: str) -> str:
    """One spelling for builtin types of several words: ``long unsigned int`` -> ``unsigned long``."""
    parts = words.split()
    known = {"unsigned", "signed", "long", "short", "int", "char", "double"}
    if len(parts) < 2 or not set(parts) <= known:
        return words
    if "double" in parts:
        return "double"
    width = (
        "char"
        if "char" in parts
        else "short"
        if "short" in parts
        else " ".join(["long"] * parts.count("long"))
    )
    sign = "unsigned" if "unsigned" in parts else "signed" if "signed" in parts and "char" in parts else ""
    return " ".join(p for p in (sign, width or "int") if p)


@functools.lru_cache(maxsize=1024)
def size_of(name: str) -> int | None:
    """Bytes of a named element type, or None for a type we do not know."""
    if name.endswith("*"):
        return 8
    if name in KINDS:
        return SIZES[KINDS[name]]
    if name in _OTHER_SIZES:
        return _OTHER_SIZES[name]
    vector = _VECTOR.fullmatch(name)
    if vector:
        return _VECTOR_UNIT.get(vector.group(1), 8) * int(vector.group(2))
    return None


def is_float(kind: str) -> bool:
    return kind.startswith(("float", "bfloat"))


_LIMITS = {f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
_LIMITS |= {f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)}


def convert(number: Num, kind: str) -> Num:
    """C conversion of a number to another machine type (wraps integers, rounds floats, truncates float to int)."""
    value = number.value
    if type(value) is int and kind in _LIMITS:
        low, high = _LIMITS[kind]
        if low <= value <= high:
            return number if number.kind == kind else Num(value, kind)
    if kind == "bool":
        return Num(bool(value), kind)
    if is_float(kind):
        return Num(_round_float(float(value), kind), kind)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unsupported(f"conversion of {value} to {C_NAMES[kind]}")
        value = int(value)
    bits = SIZES[kind] * 8
    value = int(value) & ((1 << bits) - 1)
    if not kind.startswith("u") and value >> (bits - 1):
        value -= 1 << bits
    return Num(value, kind)


def _round_float(value: float, kind: str) -> float:
    code = {"float32": "f", "float16": "e"}.get(kind)
    if code is None or not math.isfinite(value):
        return value
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def promoted(kind: str) -> str:
    return "int32" if kind in ("bool", "int8", "uint8", "int16", "uint16") else kind


def common(a: str, b: str) -> str:
    """The usual arithmetic conversions."""
    a, b = promoted(a), promoted(b)
    if is_float(a) or is_float(b):
        order = ["bfloat16", "float16", "float32", "float64"]
        return max((k for k in (a, b) if is_float(k)), key=order.index)
    order = ["int32", "uint32", "int64", "uint64"]
    return max((a, b), key=order.index)


_COMPARE = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def binary(operator: str, left: Num, right: Num) -> Num:
    """``left operator right`` as C computes it. Division by zero of integers is a HostError (the process would die)."""
    if operator in ("<<", ">>"):
        kind = promoted(left.kind)
        amount = right.value
        if is_float(kind) or is_float(right.kind) or not 0 <= amount < SIZES[kind] * 8:
            raise Unsupported(f"shift of a {C_NAMES[left.kind]} by {amount}")
        value = int(left.value)
        return convert(Num(value << int(amount) if operator == "<<" else value >> int(amount), "int64"), kind)
    kind = common(left.kind, right.kind)
    a, b = convert(left, kind).value, convert(right, kind).value
    if operator in _COMPARE:
        return Num(_COMPARE[operator](a, b), "bool")
    if operator == "/":
        return convert(Num(_divide(a, b), kind), kind)
    if is_float(kind) and operator not in ("+", "-", "*"):
        raise Unsupported(f"operator {operator} on floating point")
    if operator == "%":
        a, b = int(a), int(b)
        return convert(Num(a - b * int(_divide(a, b)), kind), kind)
    results = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}
    results |= {"&": lambda: int(a) & int(b), "|": lambda: int(a) | int(b), "^": lambda: int(a) ^ int(b)}
    if operator not in results:
        raise Unsupported(f"operator {operator}")
    try:
        return convert(Num(results[operator](), kind), kind)
    except OverflowError:
        return Num(math.inf, kind)


def _divide(a: int | float, b: int | float) -> int | float:
    if isinstance(a, float) or isinstance(b, float):
        if b == 0:
            return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
        return a / b
    if b == 0:
        raise HostError("integer division by zero in the host code")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@functools.lru_cache(maxsize=4096)
def literal(text: str) -> Num:
    """A number literal: ``0x10u``, ``1'000'000``, ``3ull``, ``1e-5f``."""
    raw = text.replace("'", "")
    lower = raw.lower()
    hexadecimal = lower.startswith("0x")
    if (not hexadecimal and re.search(r"[.e]", lower)) or (hexadecimal and "p" in lower):
        digits = raw.rstrip("fFlL")
        value = float.fromhex(digits) if hexadecimal else float(digits)
        return convert(Num(value, "float64"), "float32" if lower.endswith("f") else "float64")
    digits = lower.rstrip("ulz")
    suffix = lower[len(digits) :]
    try:
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        value = int(digits, 8 if octal else 0)
    except ValueError:
        raise Unsupported(f"number {text!r}") from None
    long, unsigned = "l" in suffix or "z" in suffix, "u" in suffix
    choices = ["int32"] * (not long and not unsigned) + ["uint32"] * (
        not long and (unsigned or not digits.isdecimal())
    )
    choices += ["int64"] * (not unsigned) + ["uint64"]
    for kind in choices:
        if convert(Num(value, kind), kind).value == value:
            return Num(value, kind)
    raise Unsupported(f"number {text!r} is too large")
