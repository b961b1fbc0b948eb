"""The CUDA texts of a document as a compiler reads them, and where their places are in the document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from dice_engine.source import load_inline, pytorch
from dice_engine.source.document_holes import CUDA_SUFFIXES, PYTHON_SUFFIXES
from dice_engine.source.lines import LineMap, to_bytes
from dice_engine.source.python_string import StringLiteral

_WORD = re.compile(rb"[\w\x80-\xff]")


@dataclass(frozen=True)
class CudaText:
    """A ``.cu`` document, or one string that a Python document gives to ``load_inline``."""

    value: str
    literal: StringLiteral | None

    def document_range(self, line: int, column: int) -> tuple[int, int]:
        """The document's bytes of the word at a place of ``value`` (line from 0, column in bytes)."""
        lines = LineMap(self.value)
        start = min(lines.starts[min(line, len(lines.starts) - 1)] + column, len(lines.data))
        end = start
        while end < len(lines.data) and _WORD.match(lines.data, end):
            end += 1
        if end == start and start < len(lines.data) and lines.data[start : start + 1] not in b"\r\n":
            end += 1
        if self.literal is None:
            return start, end
        return self.literal.document_start(start), self.literal.document_end(end)


def cuda_texts(text: str, path: str) -> list[CudaText]:
    """Every CUDA text of a document that has a fixed text, in order."""
    suffix = PurePath(path).suffix.lower()
    if suffix in CUDA_SUFFIXES:
        return [CudaText(text, None)]
    if suffix not in PYTHON_SUFFIXES or "load_inline" not in text:
        return []
    sources = load_inline.inline_sources(pytorch.parse(to_bytes(text)))
    return [CudaText(one.literal.value, one.literal) for one in sources if one.literal is not None]
