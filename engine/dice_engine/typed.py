"""Plain data (what msgpack and JSON hold) from dataclasses, and back with every type checked."""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class TypeMismatch(ValueError):
    """Data that does not have the shape of the dataclass; the message names the field."""


def plain(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists, all the way down."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def structure(kind: Any, value: Any, where: str = "") -> Any:
    """``value`` as an object of type ``kind``: a dataclass, a builtin, Literal, Union, list, tuple or dict of such.

    Unknown fields and wrong types raise :class:`TypeMismatch`; missing fields take the dataclass's defaults.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, where)
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Literal:
        if value in args:
            return value
    elif origin in (Union, types.UnionType):
        for option in args:
            try:
                return structure(option, value, where)
            except TypeMismatch:
                continue
    elif origin is list and isinstance(value, list):
        return [structure(args[0], v, f"{where}[{i}]") for i, v in enumerate(value)]
    elif origin is tuple and isinstance(value, (list, tuple)):
        inner = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(inner) == len(value):
            return tuple(
                structure(t, v, f"{where}[{i}]") for i, (t, v) in enumerate(zip(inner, value, strict=True))
            )
    elif origin is dict and isinstance(value, dict):
        return {structure(args[0], k, where): structure(args[1], v, f"{where}.{k}") for k, v in value.items()}
    elif kind is float and type(value) in (int, float):
        return float(value)
    elif (kind is None or kind is types.NoneType) and value is None:
        return None
    elif isinstance(kind, type) and type(value) is kind:  # bool is no int here
        return value
    name = kind if isinstance(kind, str) or origin else getattr(kind, "__name__", kind)
    raise TypeMismatch(f"{where or 'value'} should be {name}, it is {_short(value)}")


def _dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise TypeMismatch(f"{where or 'value'} should be a map ({kind.__name__}), it is {_short(value)}")
    hints = _hints(kind)
    unknown = [k for k in value if k not in hints]
    if unknown:
        raise TypeMismatch(f"{where or kind.__name__} has the unknown field {_short(unknown[0])}")
    arguments = {k: structure(hints[k], v, f"{where}.{k}" if where else k) for k, v in value.items()}
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise TypeMismatch(f"{where or kind.__name__}: {error}") from None


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
