"""A hole: what is to be written, between the user's own bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dice_engine.source.lines import to_text
from dice_engine.source.plan import Plan

HoleKind = Literal["kernel_body", "selection", "load_inline_core", "module"]


@dataclass(frozen=True)
class Hole:
    """One place in a document that the engine may write.

    ``data`` is the document in UTF-8, which all its holes share. ``prefix + core + suffix`` is the document's text,
    character for character. A kernel inside a Python string keeps
    its document text here; ``holes.decode`` gives what the engine reads (escapes resolved, newlines as ``\\n``) and
    ``holes.edit`` turns a core that the engine wrote back into document text.

    Offsets are UTF-8 byte offsets into the document, ends exclusive; ``anchor`` is the range a cursor must be in to
    mean this hole (the whole kernel or class, signature included).
    """

    kind: HoleKind
    name: str
    data: bytes = field(repr=False)
    start_byte: int
    end_byte: int
    anchor: tuple[int, int]
    editable: bool
    reason: str | None
    plan: Plan
    newline: str = "\n"
    string_prefix: str = field(default="", repr=False)
    """The literal's opening (``r\"\"\"``, ``'``...) when the hole lies inside a Python string, else empty."""
    string_content: tuple[int, int] | None = field(default=None, repr=False)
    """Byte range of that literal's content, without the quotes."""
    signature: str | None = None
    """For a plain Python function: its parameters and what it returns, as written; None for everything else."""

    @property
    def prefix(self) -> str:
        return to_text(self.data[: self.start_byte])

    @property
    def core(self) -> str:
        return to_text(self.data[self.start_byte : self.end_byte])

    @property
    def suffix(self) -> str:
        return to_text(self.data[self.end_byte :])


def within(hole: Hole, start: int, end: int) -> Hole | None:
    """The hole in the bytes ``start`` to ``end`` of its document, as if they were a document; None where it is not."""
    inside = start <= hole.anchor[0] and hole.anchor[1] <= end
    return _moved(hole, hole.data[start:end], -start) if inside else None


def surrounded(hole: Hole, before: bytes, after: bytes) -> Hole:
    """The hole in a longer document: what ``within`` undoes."""
    return _moved(hole, before + hole.data + after, len(before))


def _moved(hole: Hole, data: bytes, by: int) -> Hole:
    content = hole.string_content
    return replace(
        hole,
        data=data,
        start_byte=hole.start_byte + by,
        end_byte=hole.end_byte + by,
        anchor=(hole.anchor[0] + by, hole.anchor[1] + by),
        string_content=(content[0] + by, content[1] + by) if content else None,
    )


@dataclass(frozen=True)
class DecodedHole:
    """What the engine reads of a hole: escapes of a surrounding Python string resolved, newlines as ``\\n``."""

    prefix: str
    core: str
    suffix: str
