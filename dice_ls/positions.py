"""Client positions and byte offsets of one text.

LSP ends a line at ``\\n``, ``\\r\\n`` or ``\\r`` only. ``str.splitlines`` (and pygls with it) also ends lines at form
feeds, U+2028 and others, which shifts every position after such a character; ``LineMap`` does it right.
"""

from __future__ import annotations

from dice_engine.source.lines import Encoding, LineMap, to_text
from lsprotocol import types

__all__ = ["Encoding", "Positions", "units"]


def units(text: str, encoding: Encoding) -> int:
    """Length of ``text`` in code units of ``encoding``; lone surrogates count as one UTF-16 unit."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(1 for char in text if char > "\uffff")


class Positions:
    """The lines of one text. Offsets are UTF-8 byte offsets; whatever lies outside the text is clamped to it."""

    def __init__(self, text: str | LineMap, encoding: Encoding) -> None:
        self.encoding: Encoding = encoding
        self._map = text if isinstance(text, LineMap) else LineMap(text)

    def edited(self, start: int, end: int, text: bytes) -> Positions:
        """After the bytes ``start`` to ``end`` were replaced by ``text``."""
        return Positions(self._map.edited(start, end, text), self.encoding)

    @property
    def data(self) -> bytes:
        """The text in UTF-8."""
        return self._map.data

    @property
    def line_count(self) -> int:
        return len(self._map.starts)

    def line(self, number: int) -> str:
        """Line ``number`` (from 0) without its line end; empty past the end of the text."""
        starts = self._map.starts
        if not 0 <= number < len(starts):
            return ""
        end = starts[number + 1] if number + 1 < len(starts) else len(self.data)
        return to_text(self.data[starts[number] : end]).rstrip("\r\n")

    def word(self, offset: int) -> str:
        """The identifier around a byte offset, or an empty string."""
        line, column = self._map.position(min(max(offset, 0), len(self.data)))
        text = self.line(line)
        start = end = column
        while start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        while end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
        return text[start:end]

    def offset(self, position: types.Position) -> int:
        """The byte offset of a client position; inside a character, that character's start."""
        return self._whole(self._map.offset(position.line, position.character, self.encoding))

    def position(self, offset: int) -> types.Position:
        """The client position of a byte offset; inside a character, of that character's start."""
        line, character = self._map.position(self._whole(min(max(offset, 0), len(self.data))), self.encoding)
        return types.Position(line, character)

    def _whole(self, offset: int) -> int:
        while offset < len(self.data) and self.data[offset] & 0xC0 == 0x80:
            offset -= 1
        return offset

    def range(self, start: int, end: int) -> types.Range:
        """The client range of the bytes ``start`` (inclusive) to ``end`` (exclusive)."""
        return types.Range(self.position(start), self.position(end))
