"""Where the variables of a source lie in a library that the CPU backend has built, by what the linker lists."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_ANCHOR = "dice_set_order"
_VARIABLE = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) [bBdDrRuV] (.+)$", re.MULTILINE)
_FUNCTION = re.compile(rf"^([0-9a-f]+) [0-9a-f]+ T {_ANCHOR}$", re.MULTILINE)
_DECLARED = r"\b(?:{})\b([^;{{}}()=]*(?:\([^()]*\)[^;{{}}()=]*)?)"


@dataclass(frozen=True)
class Variables:
    """Addresses and sizes of the source's ``__shared__`` variables, and of its device variables by name."""

    library: ctypes.CDLL
    listed: str
    text: str

    @cached_property
    def shared(self) -> list[tuple[int, int]]:
        """Inside functions, so that a function's own ``static`` is told from it by its name alone."""
        names = declared_names(self.text, "__shared__")
        return [(at, size) for name, at, size in self._all if ")::" in name and _last(name) in names]

    @cached_property
    def device(self) -> dict[str, tuple[int, int]]:
        names = declared_names(self.text, "__device__|__constant__|__managed__")
        return {
            _last(name): (at, size)
            for name, at, size in self._all
            if ")::" not in name.replace("(anonymous namespace)::", "") and _last(name) in names
        }

    @cached_property
    def _all(self) -> list[tuple[str, int, int]]:
        anchor = _FUNCTION.search(self.listed)
        if anchor is None:
            return []
        at: Any = ctypes.cast(getattr(self.library, _ANCHOR), ctypes.c_void_p).value
        base = at - int(anchor[1], 16)
        return [
            (name, base + int(where, 16), int(size, 16))
            for where, size, name in _VARIABLE.findall(self.listed)
            if int(size, 16)
        ]


def copy_device(source: Variables, target: Variables) -> None:
    """Give the device variables of ``target`` the contents of those of ``source``: another build of one source."""
    for name, (at, size) in source.device.items():
        there = target.device.get(name)
        if there is not None and there[1] == size:
            ctypes.memmove(there[0], at, size)


def declared_names(text: str, qualifiers: str) -> set[str]:
    """Every word of the declarations with one of ``qualifiers``: the variables' names, and their types'."""
    declared = re.findall(_DECLARED.format(qualifiers), text)
    return {word for part in declared for word in re.findall(r"[A-Za-z_]\w*", part)}


def _last(name: str) -> str:
    return re.split(r"::", name)[-1].partition("[")[0]
