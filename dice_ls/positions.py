"""Positions: LSP lines and code units, Python characters and UTF-8 bytes of one text.

LSP ends a line at ``\\n``, ``\\r\\n`` or ``\\r`` only. ``str.splitlines`` (and pygls with it) also ends lines at form
feeds, U+2028 and others, which shifts every position after such a character, so lines are found here.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol import types

_LINE_END = re.compile(r"\r\n|\n|\r")
Encoding = str
"""``utf-8``, ``utf-16`` or ``utf-32``: the unit in which the client counts ``character``."""


def units(text: str, encoding: Encoding) -> int:
    """Length of ``text`` in code units of ``encoding``; lone surrogates count as one UTF-16 unit."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(1 for char in text if char > "\uffff")


def _characters(text: str, count: int, encoding: Encoding) -> int:
    """How many characters of ``text`` the first ``count`` code units cover, clamped to the text.

    A count that ends inside a character (half of a surrogate pair) means the position before that character.
    """
    if count <= 0:
        return 0
    if encoding == "utf-32" or text.isascii():
        return min(count, len(text))
    seen = 0
    for index, char in enumerate(text):
        if encoding == "utf-8":
            point = ord(char)
            seen += 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4
        else:
            seen += 2 if char > "\uffff" else 1
        if seen > count:
            return index
    return len(text)


class TextIndex:
    """Line starts of one text, in characters and (when first asked for) in UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ascii = text.isascii()
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._byte_starts: list[int] | None = None

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def line(self, number: int) -> str:
        """Line ``number`` (from 0) without its line end; empty past the end of the text."""
        if not 0 <= number < len(self._starts):
            return ""
        end = self._starts[number + 1] if number + 1 < len(self._starts) else len(self.text)
        return self.text[self._starts[number] : end].rstrip("\r\n")

    def offset(self, position: types.Position, encoding: Encoding) -> int:
        """The character offset of a client position. Positions outside the text are clamped to it."""
        if position.line < 0:
            return 0
        if position.line >= len(self._starts):
            return len(self.text)
        return self._starts[position.line] + _characters(
            self.line(position.line), position.character, encoding
        )

    def position(self, offset: int, encoding: Encoding) -> types.Position:
        """The client position of a character offset, clamped to the text."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._starts, offset) - 1
        return types.Position(line, units(self.text[self._starts[line] : offset], encoding))

    def range(self, start: int, end: int, encoding: Encoding) -> types.Range:
        """The client range of the characters ``start`` (inclusive) to ``end`` (exclusive)."""
        return types.Range(self.position(start, encoding), self.position(end, encoding))

    def to_byte(self, offset: int) -> int:
        """The UTF-8 byte offset of a character offset."""
        if self._ascii:
            return offset
        line = bisect_right(self._starts, offset) - 1
        inside = self.text[self._starts[line] : offset]
        return self._bytes()[line] + len(inside.encode("utf-8", "surrogatepass"))

    def from_byte(self, byte: int) -> int:
        """The character offset of a UTF-8 byte offset; inside a character, that character's start."""
        if self._ascii:
            return min(max(byte, 0), len(self.text))
        starts = self._bytes()
        line = max(bisect_right(starts, byte) - 1, 0)
        end = self._starts[line + 1] if line + 1 < len(self._starts) else len(self.text)
        return self._starts[line] + _characters(
            self.text[self._starts[line] : end], byte - starts[line], "utf-8"
        )

    def _bytes(self) -> list[int]:
        if self._byte_starts is None:
            self._byte_starts = [0]
            for start, end in zip(self._starts, self._starts[1:], strict=False):
                size = len(self.text[start:end].encode("utf-8", "surrogatepass"))
                self._byte_starts.append(self._byte_starts[-1] + size)
        return self._byte_starts
