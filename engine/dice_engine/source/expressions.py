"""Size and launch expressions of plans and annotations: integers, C operators, C division. No ``eval``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*|([A-Za-z_]\w*)|(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^~!?:(),]))"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LIMIT = 2**63
_FUNCTIONS = {"min": min, "max": max}


class ExpressionError(ValueError):
    """The expression cannot be read or has no value; the message says where and why."""


def evaluate(text: str, symbols: Mapping[str, int]) -> int:
    """The value of ``text``, e.g. ``(h+7)/8`` or ``min(n, 1024)``.

    Division and remainder truncate toward zero as in C. Values must fit 64 bits. Comparisons and logic give 0 or 1.
    """
    return _Parser(text, symbols).whole()


def names(text: str) -> set[str]:
    """The symbols that ``text`` uses (function names left out)."""
    found: set[str] = set()
    for match in re.finditer(r"[A-Za-z_]\w*", text):
        called = text[match.end() :].lstrip().startswith("(")
        in_number = match.start() > 0 and text[match.start() - 1].isalnum()
        if not in_number and not (called and match.group() in _FUNCTIONS):
            found.add(match.group())
    return found


class _Parser:
    def __init__(self, text: str, symbols: Mapping[str, int]) -> None:
        self.text, self.symbols = text, symbols
        self.tokens: list[tuple[str, int]] = []
        self.at = 0
        self.dead = 0
        """Above 0 inside a branch that C would not evaluate: division by zero there is no error."""
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                rest = text[position:].lstrip()
                self._fail(f"unexpected {rest[:1]!r}", len(text) - len(rest))
            self.tokens.append(
                (match.group(1) or match.group(2) or match.group(3), match.start(match.lastindex or 0))
            )
            position = match.end()
        if len(self.tokens) > 2000:
            self._fail("too long", 0)

    def whole(self) -> int:
        try:
            value = self._ternary()
        except RecursionError:
            raise ExpressionError("expression is nested too deeply") from None
        if self.at < len(self.tokens):
            self._fail(f"unexpected {self.tokens[self.at][0]!r}")
        return value

    def _fail(self, what: str, column: int | None = None) -> NoReturn:
        if column is None:
            column = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        raise ExpressionError(f"expression {self.text[:80]!r}, column {column + 1}: {what}")

    def _peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def _accept(self, *texts: str) -> str:
        token = self._peek()
        if token and token in texts:
            self.at += 1
            return token
        return ""

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(f"expected {text!r}")

    def _ternary(self) -> int:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        left = self._guarded(not condition, self._ternary)
        self._expect(":")
        right = self._guarded(bool(condition), self._ternary)
        return left if condition else right

    def _guarded(self, skip: bool, parse: Callable[[], int]) -> int:
        self.dead += skip
        try:
            return parse()
        finally:
            self.dead -= skip

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while operator := self._accept(*_LEVELS[level]):
            skip = (operator == "&&" and not left) or (operator == "||" and bool(left))
            right = self._guarded(skip, lambda: self._binary(level + 1))
            left = self._apply(operator, left, right)
        return left

    def _apply(self, operator: str, a: int, b: int) -> int:
        if operator in ("/", "%"):
            if b == 0:
                if not self.dead:
                    self._fail("division by zero")
                return 0
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            value = quotient if operator == "/" else a - b * quotient
        elif operator in ("<<", ">>"):
            if not 0 <= b < 64:
                if not self.dead:
                    self._fail(f"shift by {b}")
                return 0
            value = a << b if operator == "<<" else a >> b
        else:
            value = {
                "||": lambda: int(bool(a) or bool(b)),
                "&&": lambda: int(bool(a) and bool(b)),
                "|": lambda: a | b,
                "^": lambda: a ^ b,
                "&": lambda: a & b,
                "==": lambda: int(a == b),
                "!=": lambda: int(a != b),
                "<": lambda: int(a < b),
                ">": lambda: int(a > b),
                "<=": lambda: int(a <= b),
                ">=": lambda: int(a >= b),
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
            }[operator]()
        return self._checked(value)

    def _checked(self, value: int) -> int:
        if not -_LIMIT <= value < 2 * _LIMIT:
            if not self.dead:
                self._fail("value does not fit 64 bits")
            return 0
        return value

    def _unary(self) -> int:
        operator = self._accept("-", "+", "~", "!")
        if operator:
            value = self._unary()
            return self._checked({"-": -value, "+": value, "~": ~value, "!": int(not value)}[operator])
        return self._primary()

    def _primary(self) -> int:
        token = self._peek()
        if self._accept("("):
            value = self._ternary()
            self._expect(")")
            return value
        if token[:1].isdigit():
            self.at += 1
            octal = len(token) > 1 and token[0] == "0" and token[1] not in "xX"
            try:
                return self._checked(int(token, 8 if octal else 0))
            except ValueError:
                self._fail(f"bad number {token!r}")
        if token[:1].isalpha() or token[:1] == "_":
            self.at += 1
            if token in _FUNCTIONS and self._accept("("):
                values = [self._ternary()]
                while self._accept(","):
                    values.append(self._ternary())
                self._expect(")")
                return _FUNCTIONS[token](values)
            if token in self.symbols:
                return int(self.symbols[token])
            self.at -= 1
            known = ", ".join(sorted(self.symbols)) or "none"
            self._fail(f"unknown symbol {token!r} (known: {known})")
        self._fail("expected a number, a symbol or '('")
