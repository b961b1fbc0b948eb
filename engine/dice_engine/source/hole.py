"""A hole: what is to be written, between the user's own bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dice_engine.source.plan import Plan

HoleKind = Literal["kernel_body", "selection", "load_inline_core", "module"]


@dataclass(frozen=True)
class Hole:
    """One place in a document that the engine may write.

    ``prefix + core + suffix`` is the document's text, character for character. A kernel inside a Python string
    keeps its document text here; ``decoded_*`` hold what the engine reads (escapes resolved, newlines as ``\\n``),
    and ``encode`` turns a decoded core back into document text.

    Offsets are UTF-8 byte offsets into the document; ``anchor`` is the range a cursor must be in to mean this hole
    (the whole kernel or class, signature included).
    """

    kind: HoleKind
    name: str
    prefix: str
    core: str
    suffix: str
    start_byte: int
    end_byte: int
    anchor: tuple[int, int]
    editable: bool
    reason: str | None
    plan: Plan
    newline: str = "\n"
    string_prefix: str = field(default="", repr=False)
    """The literal's opening (``r\"\"\"``, ``'``...) when the hole lies inside a Python string, else empty."""
