"""Ghost text: what may be written at the cursor inside a kernel, and how a decoded continuation is cut to fit there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from dice_engine.prompts import core_request
from dice_engine.source.context import shortened
from dice_engine.source.cuda import parse_cuda
from dice_engine.source.cuda_lex import lex
from dice_engine.source.hole import Hole
from dice_engine.source.holes import decode
from dice_engine.source.lines import to_bytes, to_text
from dice_engine.source.python_string import LiteralError, check_content, decode_content, encode_content
from dice_engine.wire import GenerateRequest

_TAIL = re.compile(r"[ \t]*\w*$")
_CLOSERS = re.compile(r"[\s)\]};,]*")
_PREFIX_BYTES, _SUFFIX_BYTES = 6_000, 2_000
"""What is shown of the file around the kernel: more costs more than it helps for one line."""
_MOST_TRIES = 6
_FIRST = 10
"""Ghost text goes before everything else in the engine."""


@dataclass(frozen=True)
class Place:
    """A cursor in a kernel's body, in the text that the compiler reads (a Python string's escapes resolved)."""

    hole: Hole
    offset: int
    """The cursor in the document, in bytes."""
    prefix: str
    begin: str
    """The body up to the cursor, without ``tail``."""
    tail: str
    """The word that is being typed and the blanks before it: the model writes them itself, and must agree."""
    rest: str
    """The body from the cursor on."""
    suffix: str

    @property
    def line_rest(self) -> str:
        return self.rest.partition("\n")[0]

    def text(self, ghost: str) -> str:
        """The whole source with ``ghost`` at the cursor."""
        return self.prefix + self.begin + self.tail + ghost + self.rest + self.suffix

    def request(self, tokens: int, n: int, checkpoint: str | None, device: str) -> GenerateRequest:
        core = core_request("kernel_body", self.prefix, self.begin + self.tail + self.rest, self.suffix)
        return GenerateRequest(
            id="",
            kind="kernel_body",
            prefix=shortened(self.prefix, self.begin + self.tail + self.rest, _PREFIX_BYTES),
            suffix=_first_lines(self.suffix, _SUFFIX_BYTES),
            reference=core.reference,
            n=n,
            temperature=0.5,
            max_new_tokens=tokens,
            checkpoint=checkpoint,
            device=device,  # type: ignore[arg-type]
            priority=_FIRST,
            begin=self.begin,
        )

    def document_text(self, ghost: str) -> str | None:
        """``ghost`` as it is inserted: escaped for a surrounding string, newlines as around it; None if it cannot."""
        if self.hole.string_content is None:
            return ghost.replace("\n", self.hole.newline)
        opening, core = self.hole.string_prefix, to_bytes(self.hole.core)
        at = self.offset - self.hole.start_byte
        before, after = to_text(core[:at]), to_text(core[at:])
        value = self.begin + self.tail + ghost + self.rest
        try:
            # Between letters: quotes at the ends of a text are escaped in case they meet others.
            inside = encode_content(f"x{ghost}x", opening, self.hole.newline)[1:-1]
            check_content(before + inside + after, opening, value)
            return inside
        except LiteralError:
            pass
        try:
            return encode_content(ghost, opening, self.hole.newline)
        except LiteralError:
            return None


def place(holes: list[Hole], offset: int) -> Place | None:
    """Where the cursor at byte ``offset`` of a document with these holes stands; None where no ghost text belongs:
    outside of kernels, in comments, strings and preprocessor lines, and in the middle of a line's code."""
    hole = next(
        (h for h in holes if h.kind == "kernel_body" and h.editable and h.start_byte <= offset <= h.end_byte),
        None,
    )
    if hole is None:
        return None
    core = to_bytes(hole.core)
    at = offset - hole.start_byte
    before, after = to_text(core[:at]), to_text(core[at:])
    decoded = decode(hole)
    if hole.string_content is None:
        before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    else:
        try:
            check_content(before, hole.string_prefix, decode_content(before, hole.string_prefix))
            before = decode_content(before, hole.string_prefix)
            after = decode_content(after, hole.string_prefix)
        except LiteralError:
            return None
    if before + after != decoded.core or _in_no_code(before, after):
        return None
    found = _TAIL.search(before)
    tail = found.group() if found else ""
    here = Place(hole, offset, decoded.prefix, before[: len(before) - len(tail)], tail, after, decoded.suffix)
    return here if _CLOSERS.fullmatch(here.line_rest) else None


def _in_no_code(before: str, after: str) -> bool:
    """Whether the cursor is in a comment, a string or a preprocessor line; a line comment ends after its last byte."""
    data, at = to_bytes(before + after), len(to_bytes(before))
    for skip in lex(data).skips:
        line = skip.kind == "directive" or data.startswith(b"//", skip.start)
        if skip.start < at < skip.end or (line and at == skip.end):
            return True
    return False


def cuts(here: Place, continuation: str, complete: bool) -> Iterator[str]:
    """What of a decoded continuation may stand at the cursor, the longest first; it still has to compile."""
    text = _after_tail(here.tail, continuation)
    if text is None:
        return
    lines = text.split("\n")
    if not complete and len(lines) > 1:
        lines.pop()  # cut at the length limit, maybe inside a word
    if here.line_rest.strip():
        lines = [_without_rest(lines[0], here.line_rest.strip())]
    elif not _CLOSERS.fullmatch(here.rest):
        # Code follows: one line at most, and not the one that stands there already.
        following = next(line for line in here.rest.split("\n") if line.strip())
        lines = lines[:1] if lines[0].strip() else lines[:2]
        if lines[-1].strip() == following.strip():
            return
    seen = set()
    for count in range(len(lines), max(0, len(lines) - _MOST_TRIES), -1):
        ghost = "\n".join(lines[:count]).rstrip()
        if ghost.strip() and ghost not in seen:
            seen.add(ghost)
            yield ghost


def _after_tail(tail: str, continuation: str) -> str | None:
    """The continuation without what is typed already; None when the model would have typed something else."""
    if continuation.startswith(tail):
        return continuation[len(tail) :]
    word = tail.strip()
    if not word:
        return continuation.lstrip(" \t") if not continuation.startswith("\n") else None
    stripped = continuation.lstrip(" \t")
    return stripped[len(word) :] if stripped.startswith(word) and tail != word else None


def _without_rest(line: str, rest: str) -> str:
    """One line without the closing brackets that stand after the cursor already."""
    at = line.rfind(rest)
    return line[:at] if at >= 0 else line


async def fits(here: Place, ghost: str, errors: Callable[[str], Awaitable[list[int] | None]] | None) -> bool:
    """Whether the kernel is right with ``ghost`` in it. ``errors`` gives the lines (from 0) with compiler errors, or
    None when nothing could be compiled; without a compiler only the grammar is asked."""
    text = here.text(ghost)
    if errors is not None:
        lines = await errors(text)
        first = here.prefix.count("\n")
        last = first + (here.begin + here.tail + ghost + here.rest).count("\n")
        return lines is not None and not any(first <= line <= last for line in lines)
    body = here.begin + here.tail + ghost + here.rest
    return not parse_cuda(b"void f() {" + to_bytes(body) + b"}").root_node.has_error


def _first_lines(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit].rpartition("\n")[0]
