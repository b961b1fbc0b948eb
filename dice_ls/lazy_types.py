"""The LSP types, each built when it is first used.

lsprotocol defines more than 500 attrs classes. Writing the methods of all of them takes more than half of the server's
start, and a session uses a fifth of them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from threading import RLock
from typing import Any

import attrs

_TYPES = "lsprotocol.types"
_define = attrs.define
_building = RLock()


def load() -> None:
    """Import ``lsprotocol.types`` with classes that build themselves; does nothing when it was imported before."""
    if _TYPES in sys.modules:
        return
    attrs.define = _later
    try:
        import_module(_TYPES)
    finally:
        attrs.define = _define
    # Each class resolves its references itself, as it is built.
    import_module("lsprotocol._hooks").__dict__["_resolved_forward_references"] = True


class _Fields:
    """Stands for ``__attrs_attrs__``, by which attrs and cattrs know a class, until somebody looks."""

    def __get__(self, instance: object, cls: type) -> Any:
        owner = next(one for one in cls.__mro__ if "__attrs_attrs__" in one.__dict__)
        with _building:
            if owner.__dict__["__attrs_attrs__"] is self:
                _build(owner)
        return cls.__attrs_attrs__  # type: ignore[attr-defined]


_fields = _Fields()


def _later(cls: Any = None, **options: Any) -> Any:
    """In place of ``attrs.define``; only LSP types that are defined without options wait."""
    if cls is None or options or cls.__module__ != _TYPES:
        return _define(cls, **options)
    cls.__attrs_attrs__ = _fields
    cls.__init__ = _first_init
    return cls


def _first_init(self: Any, *args: Any, **kwargs: Any) -> None:
    attrs.fields(type(self))
    self.__init__(*args, **kwargs)


def _build(cls: Any) -> None:
    from lsprotocol import types

    # In place: without slots attrs changes a class, with them it would make another one.
    _define(cls, slots=False, init=True)
    attrs.resolve_types(cls, types.ALL_TYPES_MAP, {})
