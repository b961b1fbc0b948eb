"""Python string literals: their value with a map back to the document, and new text in the literal's own form.

Decoding and encoding follow the language reference: escapes in plain literals, none in raw ones, and every newline of
the source as ``\\n``.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from dice_engine.source.lines import to_bytes, to_text

_OPENING = re.compile(rb"([A-Za-z]{0,2})(\"\"\"|'''|\"|')")
_ESCAPE = re.compile(
    rb"\r\n?|\\(?:\r\n|[\r\n]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}\"']*\}|.)",
    re.DOTALL,
)
_RAW_NEWLINE = re.compile(rb"\r\n?")
_SIMPLE = {
    b"\\": "\\",
    b"'": "'",
    b'"': '"',
    b"a": "\a",
    b"b": "\b",
    b"f": "\f",
    b"n": "\n",
    b"r": "\r",
    b"t": "\t",
    b"v": "\v",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class LiteralError(ValueError):
    """The literal cannot be read or cannot hold a text; the message completes 'cannot edit: ...'."""


@dataclass(frozen=True)
class StringLiteral:
    """One string literal of a document. Offsets are byte offsets into the document; ``value`` is what Python reads."""

    start: int
    end: int
    content_start: int
    content_end: int
    opening: str
    """Prefix letters and quotes, as written: ``r\"\"\"``."""
    value: str
    segments: tuple[tuple[int, int], ...]
    """(offset in the value's UTF-8, offset in the document) before and after each escape, in order."""

    def document_start(self, offset: int) -> int:
        """The document offset where the value's byte ``offset`` begins, for the start of a range."""
        return self._map(offset, first=True)

    def document_end(self, offset: int) -> int:
        """The same for the end of a range: text without a value (a continued line) before it is inside."""
        return self._map(offset, first=False)

    def _map(self, offset: int, first: bool) -> int:
        # The first of the segments that begin at this offset lies earliest in the document, the last one latest.
        exact = bisect_left(self.segments, (offset, -1))
        index = bisect_right(self.segments, (offset, self.end)) - 1
        if first and exact < len(self.segments) and self.segments[exact][0] == offset:
            index = exact
        value_at, document_at = self.segments[index]
        return document_at + (offset - value_at)


def read_literal(data: bytes, start: int, end: int) -> StringLiteral:
    """Read the literal at ``data[start:end]``.

    Raises:
        LiteralError: for bytes and f-strings, broken escapes, and anything else without a fixed text.
    """
    match = _OPENING.match(data, start)
    if match is None:
        raise LiteralError("it is no string literal")
    letters, quote = match.group(1).lower(), match.group(2)
    if b"f" in letters or b"t" in letters:
        raise LiteralError(
            f"it is {'an f' if b'f' in letters else 'a t'}-string, whose text is known only when it runs"
        )
    if b"b" in letters:
        raise LiteralError("it is a bytes literal")
    content_start, content_end = match.end(), end - len(quote)
    if content_end < content_start or data[content_end:end] != quote:
        raise LiteralError("its closing quotes are missing")
    value, segments = _decode(data[content_start:content_end], b"r" in letters)
    return StringLiteral(
        start=start,
        end=end,
        content_start=content_start,
        content_end=content_end,
        opening=to_text(match.group()),
        value=value,
        segments=tuple((at, content_start + source) for at, source in segments),
    )


def decode_content(content: str, opening: str) -> str:
    """The value of the text between a literal's quotes."""
    return _decode(to_bytes(content), "r" in opening.lower())[0]


def encode_content(text: str, opening: str, newline: str = "\n") -> str:
    """``text`` as it is written inside a literal that opens with ``opening``; ``newline`` is the document's.

    Raises:
        LiteralError: if a raw literal cannot hold it.
    """
    quote, triple = opening[-1], opening.endswith(('"""', "'''"))
    if "r" in opening.lower():
        bad = _CONTROL.search(text)
        if bad:
            raise LiteralError(f"a raw string cannot hold the character U+{ord(bad.group()):04X}")
        if not triple and "\n" in text:
            raise LiteralError("a raw string in single quotes cannot hold a newline")
        return text.replace("\n", newline)
    text = text.replace("\\", "\\\\")
    text = _CONTROL.sub(_escaped, text)
    if triple:
        runs = re.compile(rf"^{quote}+|{quote}+$|{quote}{{3,}}")
        text = runs.sub(lambda match: ("\\" + quote) * len(match.group()), text)
        return text.replace("\n", newline)
    return text.replace(quote, "\\" + quote).replace("\n", "\\n")


def check_content(content: str, opening: str, value: str) -> None:
    """Make sure that ``content`` between the quotes of ``opening`` is one literal with exactly this ``value``.

    Raises:
        LiteralError: if it would end early, run on, or read differently.
    """
    quote = opening[len(opening.rstrip("'\"")) :]
    if len(quote) == 3:
        inside = re.compile(rf"(?:\\.|(?!{quote})[^\\])*", re.DOTALL)
    else:
        inside = re.compile(rf"(?:\\(?:\r\n|.)|[^\\\r\n{quote}])*", re.DOTALL)
    match = inside.match(content + quote)
    if match is None or match.end() != len(content):
        raise LiteralError(f"the text cannot stand between {opening} and {quote}")
    if decode_content(content, opening) != value:
        raise LiteralError(f"the text would read differently between {opening} and {quote}")


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if char == "\r":
        return "\\r"
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def _decode(content: bytes, raw: bool) -> tuple[str, list[tuple[int, int]]]:
    """The value, and its segments with document offsets counted from the content's start."""
    parts: list[bytes] = []
    segments = [(0, 0)]
    length = position = 0
    for match in (_RAW_NEWLINE if raw else _ESCAPE).finditer(content):
        plain = content[position : match.start()]
        text = _value(match.group())
        position = match.end()
        if text is None:  # an unknown escape stands for itself
            plain += match.group()
            parts.append(plain)
            length += len(plain)
            continue
        parts += (plain, text)
        # one entry before the escape and one after it, so that each side maps to its own end
        segments.append((length + len(plain), match.start()))
        length += len(plain) + len(text)
        segments.append((length, position))
    parts.append(content[position:])
    return to_text(b"".join(parts)), segments


def _value(escape: bytes) -> bytes | None:
    """The UTF-8 of what an escape stands for; empty for a continued line; None when it stands for itself."""
    if escape[:1] == b"\r":
        return b"\n"
    body = escape[1:]
    if body[:1] in (b"\r", b"\n"):
        return b""
    if body in _SIMPLE:
        return to_bytes(_SIMPLE[body])
    try:
        if body[:1].isdigit() and body[:1] < b"8":
            return to_bytes(chr(int(body, 8)))
        if body[:1] in (b"x", b"u", b"U") and len(body) > 1:
            return to_bytes(chr(int(body[1:], 16)))
        if body[:1] == b"N" and len(body) > 1:
            return to_bytes(unicodedata.lookup(body[2:-1].decode()))
    except (KeyError, ValueError, OverflowError):
        raise LiteralError(f"its escape {to_text(escape)} means nothing") from None
    if body in (b"x", b"u", b"U", b"N"):
        raise LiteralError(f"its escape {to_text(escape)} is incomplete")
    return None
