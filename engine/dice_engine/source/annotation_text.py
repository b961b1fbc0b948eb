"""Reading ``@dice`` comment lines: items, arguments and expressions with their places in the document."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

KERNEL_KEYS = (
    "grid",
    "block",
    "smem",
    "in",
    "out",
    "inout",
    "tmp",
    "sizes",
    "fill",
    "tmpl",
    "tol",
    "host",
    "inputs",
    "fixture",
)
MODULE_KEYS = ("inputs", "init", "tol", "fixture")
_ASSIGNED = frozenset({"grid", "block", "smem", "host", "fixture"})
_WORD = re.compile(r"[A-Za-z_]\w*")
_MARKER = re.compile(r"^[\s\ufeff/*#!]*@dice(?![\w.])")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPERATOR = re.compile(r"<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^?:]")
_OPERAND = re.compile(r"(?:[-+~!]\s*)*(?:\d[\w.]*|(?:[A-Za-z_]\w*(?:::\w+)*)|(?=\())")


class DiceLine(NamedTuple):
    """The text of one comment line after its ``@dice``, and where it begins (0-based; columns in characters)."""

    text: str
    line: int
    column: int


class Span(NamedTuple):
    """A piece of an annotation: its text and its place in the joined text."""

    text: str
    start: int
    end: int


class Item(NamedTuple):
    key: Span
    value: Span
    """What stands after ``=`` or between the parentheses."""


@dataclass
class AnnotationError(ValueError):
    """One fault of an annotation. Positions are 0-based, columns in characters."""

    line: int
    column: int
    end_column: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line + 1}, column {self.column + 1}: {self.message}"


class AnnotationErrors(ValueError):
    """All faults of one annotation, in order."""

    def __init__(self, errors: Sequence[AnnotationError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = list(errors)


def dice_lines(comment: str, line: int, column: int) -> list[DiceLine]:
    """The ``@dice`` lines of one comment (``// ...``, ``# ...`` or a block) that begins at this place."""
    found = []
    for index, text in enumerate(re.split(r"\r\n|\n|\r", comment)):
        match = _MARKER.match(text)
        if match:
            body = text[match.end() :]
            if body.rstrip().endswith("*/"):
                body = body.rstrip()[:-2]
            found.append(DiceLine(body, line + index, match.end() + (column if index == 0 else 0)))
    return found


def suggestion(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean `{close[0]}`?" if close else ""


class AnnotationText:
    """The lines of one annotation as one text; every fault found is kept in ``errors``."""

    def __init__(self, lines: Sequence[DiceLine], keys: Sequence[str]) -> None:
        self.lines = list(lines)
        self.keys = keys
        self.text = "\n".join(line.text for line in lines)
        self.errors: list[AnnotationError] = []

    def error(self, span: Span | tuple[int, int], message: str) -> None:
        start, end = (span.start, span.end) if isinstance(span, Span) else span
        index = self.text.count("\n", 0, start)
        at = start - (self.text.rfind("\n", 0, start) + 1)
        line = self.lines[index]
        width = max(1, min(end, start + len(line.text) - at) - start)
        self.errors.append(AnnotationError(line.line, line.column + at, line.column + at + width, message))

    def line_of(self, span: Span) -> int:
        """The document line (1-based, for people) of a piece."""
        return self.lines[self.text.count("\n", 0, span.start)].line + 1

    def items(self) -> list[Item]:
        """The items of the annotation; unknown keys and unclosed brackets become errors."""
        found: list[Item] = []
        position, text = 0, self.text
        while True:
            while position < len(text) and (text[position].isspace() or text[position] in ",;"):
                position += 1
            if position >= len(text):
                return found
            match = _WORD.match(text, position)
            if match is None:
                end = self._line_end(position)
                self.error((position, end), f"expected a key here, found {text[position]!r}. {self._known()}")
                position = end
                continue
            key = Span(match.group(), *match.span())
            sign = re.compile(r"[ \t]*([=(])").match(text, match.end())
            position = self._item(key, sign, found)

    def _item(self, key: Span, sign: re.Match[str] | None, found: list[Item]) -> int:
        """Read one item; it is kept when it has no fault of form. Returns where the next one may begin."""
        faults = len(self.errors)
        if key.text not in self.keys:
            self.error(key, f"unknown key `{key.text}`.{suggestion(key.text, self.keys)} {self._known()}")
        elif sign is None or (sign.group(1) == "=") != (key.text in _ASSIGNED):
            form = f"{key.text}=..." if key.text in _ASSIGNED else f"{key.text}(...)"
            self.error(key, f"`{key.text}` is written as `{form}`")
        if sign is None:
            return key.end
        if sign.group(1) == "(":
            end = self._closing(sign.end() - 1, half_open=key.text == "fill")
            if end is None:
                stop = self._line_end(key.start)
                self.error((key.start, stop), f"the bracket after `{key.text}` is not closed")
                return stop
            value, after = self.span(sign.end(), end), end + 1
        elif key.text in ("host", "fixture") or key.text not in _ASSIGNED or key.text not in self.keys:
            match = re.compile(r"[ \t]*([^\s]*)").match(self.text, sign.end())
            assert match is not None
            value, after = self.span(match.start(1), match.end(1)), match.end()
        else:
            after = self._expressions_end(sign.end())
            value = self.span(sign.end(), after)
        if len(self.errors) == faults and not value.text and key.text in _ASSIGNED:
            self.error(key, f"`{key.text}=` has no value")
        if len(self.errors) == faults:
            found.append(Item(key, value))
        return max(after, sign.end())

    def span(self, start: int, end: int) -> Span:
        """[start, end) of the joined text without blanks at its ends."""
        text = self.text[start:end]
        start += len(text) - len(text.lstrip())
        return Span(text.strip(), start, start + len(text.strip()))

    def split(self, span: Span, separators: str) -> list[Span]:
        """The non-empty parts of a piece between separators that stand outside of brackets."""
        parts, depth, last = [], 0, span.start
        for at in range(span.start, span.end):
            char = self.text[at]
            if char in "([{":
                depth += 1
            elif char in ")]}":
                depth -= 1
            elif char in separators and depth == 0:
                parts.append(self.span(last, at))
                last = at + 1
        parts.append(self.span(last, span.end))
        return [part for part in parts if part.text]

    def pair(self, part: Span, what: str) -> tuple[Span, Span] | None:
        """``name=value`` as two pieces; an error when it is not that."""
        match = re.match(r"([A-Za-z_]\w*)\s*=(?!=)\s*", part.text)
        if match is None or match.end() == len(part.text):
            self.error(part, f"expected {what}, found `{part.text}`")
            return None
        name = Span(match.group(1), part.start, part.start + match.end(1))
        return name, self.span(part.start + match.end(), part.end)

    def _known(self) -> str:
        return f"Known keys: {', '.join(self.keys)}."

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end

    def _closing(self, opening: int, half_open: bool = False) -> int | None:
        """Where the bracket at ``opening`` closes; with ``half_open``, ``[low, high)`` counts as closed."""
        stack: list[str] = []
        for at in range(opening, len(self.text)):
            char = self.text[at]
            if char in _CLOSING:
                stack.append(char)
            elif char in ")]}":
                if _CLOSING[stack[-1]] != char and not (half_open and stack[-1] == "[" and char == ")"):
                    return None
                stack.pop()
                if not stack:
                    return at
        return None

    def _expressions_end(self, position: int) -> int:
        """The end of a comma-separated list of expressions: where an operand is not followed by an operator."""
        text = self.text
        while True:
            blank = re.compile(r"[ \t]*").match(text, position)
            start = blank.end() if blank else position
            operand = _OPERAND.match(text, start)
            if operand is None:
                return position
            position = operand.end()
            called = re.compile(r"[ \t]*\(" if operand.group() == "" else r"\(").match(text, position)
            if called:
                end = self._closing(called.end() - 1)
                if end is None:
                    self.error((called.start(), self._line_end(position)), "`(` is not closed")
                    return self._line_end(position)
                position = end + 1
            joint = re.compile(r"[ \t]*(,|" + _OPERATOR.pattern + r")").match(text, position)
            if joint is None:
                return position
            position = joint.end()
