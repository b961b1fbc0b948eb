"""What operators that read at other places share: sizes by name, indices in variables, reads behind a condition."""

from __future__ import annotations

from collections.abc import Sequence

from dice_training.cuke.traced.emit import Emitter, at
from dice_training.cuke.traced.values import (
    Dim,
    Value,
    constant,
    ctype,
)


def sized(value: int, *known: Dim) -> Dim:
    """``value`` as a size, by the name of a known size that equals it."""
    return next((dim for dim in known if dim.value == value), constant(value))


def hold(e: Emitter, text: str, base: str = "s") -> str:
    """An ``int`` variable with ``text``, the same one for the same text."""
    if text.isidentifier() or text.isdigit():
        return text
    key = ("int", text)
    found = e.block.find(key)
    if found is None:
        found = e.declare("int", base, text)
        e.block.own.discard(found)
        e.block.known[key] = found
    return found


def guarded(e: Emitter, value: Value, condition: str, coords: Sequence[str], fill: str) -> str:
    """``value`` at ``coords`` where ``condition`` holds, ``fill`` elsewhere: read only where it may be read."""
    if not condition:
        return e.value(value, at(value.shape, list(coords)))
    name = e.declare(ctype(value.dtype), "v", fill)
    e.block.own.discard(name)
    before = len(e.block.lines)
    with e.inside(f"if ({condition})", loop=False):
        e.line(f"{name} = {e.value(value, at(value.shape, list(coords)))};")
    if len(e.block.lines) == before + 3:
        text = e.block.lines[before + 1].strip()
        e.block.lines[before:] = [e.block.lines[before].removesuffix(" {") + f" {text}"]
    return name
