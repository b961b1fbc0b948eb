"""A lexer for CUDA text that knows comments, strings and preprocessor lines, and little else.

It never fails: a buffer that somebody is typing in still gives the tokens that can be told. All offsets are byte
offsets into the UTF-8 text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

TokenKind = Literal["{", "}", "(", ")", ";", "__global__", "directive", "unclosed"]
SkipKind = Literal["comment", "string", "directive"]

_INTEREST = re.compile(rb"[{}();#\"']|//|/\*|__global__")
_LINE_COMMENT = re.compile(rb"//(?:[^\n\\]+|\\\r?\n|\\)*")
_DIRECTIVE = re.compile(
    rb"#(?:[^\n\\/\"]+|\\\r?\n|\\|/\*.*?\*/|//(?:[^\n\\]+|\\\r?\n|\\)*|/|\"(?:[^\"\\\n]+|\\[^\n])*\"?)*",
    re.DOTALL,
)
_STRING = re.compile(rb"\"(?:[^\"\\\n]+|\\\r?\n|\\.)*\"?|'(?:[^'\\\n]+|\\\r?\n|\\.)*'?")
_RAW_OPENING = re.compile(rb"\"([^()\\\s\"]{0,16})\(")
_RAW_PREFIX = re.compile(rb"(?:^|[^\w\x80-\xff])(?:u8|u|U|L)?R$")
_WORD = re.compile(rb"[\w\x80-\xff]")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEX = b"0123456789abcdefABCDEF"
_NOT_NEWLINE = re.compile(rb"[^\r\n]")


class Token(NamedTuple):
    kind: TokenKind
    start: int
    end: int


class Skip(NamedTuple):
    """A stretch of text that is no code: a comment, a string or character literal, a preprocessor line."""

    kind: SkipKind
    start: int
    end: int


@dataclass(frozen=True)
class Lexed:
    data: bytes
    tokens: list[Token] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)

    def directive(self, token: Token) -> tuple[str, str]:
        """A preprocessor line as (word, rest): ``("if", "0")``; continuation lines joined."""
        text = re.sub(rb"\\\r?\n", b" ", self.data[token.start + 1 : token.end]).decode(errors="replace")
        word, _, rest = text.strip().partition(" ")
        # "#if(X)" and "#if!X" have no space
        match = re.match(r"\w+", word)
        name = match.group() if match else ""
        return name, (word[len(name) :] + " " + rest).strip()

    def code(self, start: int, end: int) -> bytes:
        """The text of [start, end) with everything that is no code blanked, byte for byte as long."""
        out = bytearray(self.data[start:end])
        for skip in self.skips_in(start, end):
            low, high = max(skip.start, start) - start, min(skip.end, end) - start
            out[low:high] = _NOT_NEWLINE.sub(b" ", bytes(out[low:high]))
        return bytes(out)

    def skips_in(self, start: int, end: int) -> list[Skip]:
        """The skips that overlap [start, end), in order."""
        index, found = self.skip_index(start), []
        while index < len(self.skips) and self.skips[index].start < end:
            found.append(self.skips[index])
            index += 1
        return found

    def skip_index(self, offset: int) -> int:
        """The index of the first skip that ends after ``offset``."""
        return bisect_right(self.skips, offset, key=lambda skip: skip.end)


def lex(data: bytes) -> Lexed:
    """The structural tokens and the skipped stretches of ``data``, in order, in one pass."""
    result = Lexed(data)
    tokens, skips = result.tokens, result.skips
    search, position = _INTEREST.search, 0
    last_close = data.rfind(b"*/")
    while match := search(data, position):
        start, position = match.span()
        text = match.group()
        if text in b"{}();":
            tokens.append(Token(text.decode(), start, position))  # type: ignore[arg-type]
        elif text == b"//":
            position = _end(_LINE_COMMENT, data, start)
            skips.append(Skip("comment", start, position))
        elif text == b"/*":
            if last_close < position:
                tokens.append(Token("unclosed", start, position))
                skips.append(Skip("comment", start, position))
            else:
                position = data.find(b"*/", position) + 2
                skips.append(Skip("comment", start, position))
        elif text == b"#":
            if _starts_line(data, start, skips):
                position = _end(_DIRECTIVE, data, start)
                tokens.append(Token("directive", start, position))
                skips.append(Skip("directive", start, position))
        elif text == b"__global__":
            before = b"" if data.endswith(BYTE_ORDER_MARK, 0, start) else data[start - 1 : start]
            if not _WORD.search(before + data[position : position + 1]):
                tokens.append(Token("__global__", start, position))
        elif text == b"'" and _separates_digits(data, start):
            continue
        else:
            position = _string_end(data, start)
            skips.append(Skip("string", start, position))
    return result


def _end(pattern: re.Pattern[bytes], data: bytes, start: int) -> int:
    match = pattern.match(data, start)
    assert match is not None  # each pattern begins with the text that was just found
    return match.end()


def _string_end(data: bytes, start: int) -> int:
    if data[start] == ord('"') and _RAW_PREFIX.search(data[max(0, start - 4) : start]):
        opening = _RAW_OPENING.match(data, start)
        if opening:
            closing = data.find(b")" + opening.group(1) + b'"', opening.end())
            if closing >= 0:
                return closing + len(opening.group(1)) + 2
    return _end(_STRING, data, start)


def _separates_digits(data: bytes, at: int) -> bool:
    if data[at - 2 : at] == b"u8":  # u8'a' is a character, whatever a is
        return False
    return at > 0 and data[at - 1] in _HEX and data[at + 1 : at + 2] != b"" and data[at + 1] in _HEX


def _starts_line(data: bytes, at: int, skips: list[Skip]) -> bool:
    line = data.rfind(b"\n", 0, at) + 1
    before = data[line:at]
    if skips and before.strip() and skips[-1].kind == "comment" and before.rstrip().endswith(b"*/"):
        # a block comment may stand before the '#'
        before = data[line : max(line, skips[-1].start)]
    return not before.removeprefix(BYTE_ORDER_MARK).strip()
