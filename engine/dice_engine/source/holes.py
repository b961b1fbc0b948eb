"""The holes of a document: what the engine may write, where, and how it can be run.

``find_holes`` reads a ``.cu``/``.cuh`` or ``.py`` text; ``decode`` gives what the engine reads of a hole and ``apply``
the document with another core. Nothing outside the core ever changes.
"""

from __future__ import annotations

from dice_engine.source.annotation import AnnotationError
from dice_engine.source.document_holes import (
    RANK,
    DocumentHoles,
    UnsupportedFile,
)
from dice_engine.source.hole import DecodedHole, Hole
from dice_engine.source.lines import to_bytes, to_text
from dice_engine.source.project import Project
from dice_engine.source.python_string import check_content, decode_content, encode_content

__all__ = ["UnsupportedFile", "apply", "decode", "edit", "find_annotation_errors", "find_holes", "hole_at"]


def find_holes(text: str, path: str, project: Project | None = None) -> list[Hole]:
    """All holes of a document, in order, those that cannot be edited included (with their reason).

    ``project`` may annotate what has no annotation of its own.

    Raises:
        UnsupportedFile: by the suffix of ``path``.
    """
    return DocumentHoles(text, path, project).holes()


def find_annotation_errors(text: str, path: str) -> list[AnnotationError]:
    """Every fault of the ``@dice`` lines of a document, lines that stand above nothing included."""
    if "@dice" not in text:
        return []
    document = DocumentHoles(text, path)
    document.holes()
    document.find_stray_lines()
    return sorted(document.errors, key=lambda error: (error.line, error.column))


def hole_at(holes: list[Hole], offset: int) -> Hole | None:
    """The hole that a cursor at byte ``offset`` means: editable before not, kernel before source before module."""
    around = [hole for hole in holes if hole.anchor[0] <= offset <= hole.anchor[1]]
    return min(
        around,
        key=lambda hole: (not hole.editable, RANK[hole.kind], hole.anchor[1] - hole.anchor[0]),
        default=None,
    )


def decode(hole: Hole) -> DecodedHole:
    """What the engine reads: inside a Python string the CUDA text that Python sees, else the document's own text."""
    if hole.string_content is None:
        return DecodedHole(*(part.replace("\r\n", "\n") for part in (hole.prefix, hole.core, hole.suffix)))
    before, after = _around_core(hole)
    return DecodedHole(*(decode_content(part, hole.string_prefix) for part in (before, hole.core, after)))


def edit(hole: Hole, core: str) -> str:
    """The document text for a core that the engine wrote: escaped for a surrounding string, newlines as around it.

    Raises:
        LiteralError: if the surrounding literal cannot hold the core.
    """
    core = core.replace("\r\n", "\n")
    if hole.string_content is None:
        return core.replace("\n", hole.newline)
    encoded = encode_content(core, hole.string_prefix, hole.newline)
    before, after = _around_core(hole)
    decoded = decode(hole)
    check_content(before + encoded + after, hole.string_prefix, decoded.prefix + core + decoded.suffix)
    return encoded


def apply(hole: Hole, core: str) -> str:
    """The whole document with ``core`` (as the engine wrote it) in the hole.

    Raises:
        LiteralError: if the surrounding literal cannot hold the core.
    """
    return hole.prefix + edit(hole, core) + hole.suffix


def _around_core(hole: Hole) -> tuple[str, str]:
    """The literal's content before and after the core, as it stands in the document."""
    assert hole.string_content is not None
    start, end = hole.string_content
    before = to_text(to_bytes(hole.prefix)[start:])
    after = to_text(to_bytes(hole.suffix)[: end - hole.end_byte])
    return before, after
