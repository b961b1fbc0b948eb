"""Positions in a document: byte offsets, and lines with columns in the three encodings that editors use."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_NEWLINE = re.compile(rb"\r\n|\n|\r")


def to_bytes(text: str) -> bytes:
    """UTF-8, lone surrogates included: an editor may send them, and offsets must still be told."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def dominant_newline(*texts: str) -> str:
    """``\\r\\n`` or ``\\n``: what the first of ``texts`` that has a newline mostly uses."""
    for text in texts:
        newlines = text.count("\n")
        if newlines:
            return "\r\n" if 2 * text.count("\r\n") > newlines else "\n"
    return "\n"


class LineMap:
    """Turns UTF-8 byte offsets of one document into (line, column) and back; both 0-based.

    Columns count code units of ``encoding``; ``utf-32`` counts characters as Python does.
    """

    def __init__(self, text: str) -> None:
        self.data = to_bytes(text)
        self.starts = [0, *(match.end() for match in _NEWLINE.finditer(self.data))]

    def edited(self, start: int, end: int, text: bytes) -> LineMap:
        """The map after the bytes ``start`` to ``end`` were replaced; only the lines around them are read again."""
        new = LineMap("")
        new.data = self.data[:start] + text + self.data[end:]
        by = len(text) - (end - start)
        # A line end may be made of two bytes: the line before and the one after are read again too.
        first = max(0, bisect_right(self.starts, start) - 2)
        last = bisect_right(self.starts, end + 1)
        low = self.starts[first]
        high = self.starts[last] + by if last < len(self.starts) else len(new.data)
        inside = [low + match.end() for match in _NEWLINE.finditer(new.data[low:high])]
        below = [at + by for at in self.starts[last + 1 :]]
        new.starts = [*self.starts[: first + 1], *inside, *below]
        return new

    def position(self, offset: int, encoding: Encoding = "utf-32") -> tuple[int, int]:
        line = bisect_right(self.starts, offset) - 1
        return line, _units(self.data[self.starts[line] : offset], encoding)

    def offset(self, line: int, column: int, encoding: Encoding = "utf-32") -> int:
        """The byte offset; a column beyond the line's end means its end, a line beyond the last the text's end."""
        if line >= len(self.starts):
            return len(self.data)
        start = self.starts[line]
        end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.data)
        content = self.data[start:end].rstrip(b"\r\n")
        if encoding == "utf-8":
            return start + min(column, len(content))
        size = 0
        for char in to_text(content):
            width = 2 if encoding == "utf-16" and ord(char) > 0xFFFF else 1
            if column < width:
                break
            column -= width
            size += len(to_bytes(char))
        return start + size


def _units(data: bytes, encoding: Encoding) -> int:
    if encoding == "utf-8":
        return len(data)
    text = data.decode("utf-8", "replace") if encoding == "utf-32" else data.decode("utf-8", "surrogatepass")
    return len(text) if encoding == "utf-32" else len(text.encode("utf-16-le", "surrogatepass")) // 2
