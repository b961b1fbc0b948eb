"""Tokens of CUDA/C++ text: comments become space, line numbers survive."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
      (?P<space>(?:[ \t\v\f\ufeff]|\\\r?\n)+)
    | (?P<newline>\r?\n|\r)
    | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<string>(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]{0,16})\(.*?\)(?P=fence)"
        |(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    | (?P<char>'(?:\\.|[^'\\\n])+')
    | (?P<name>(?:[^\W\d]|\$)[\w$]*)
    | (?P<number>\.?[0-9](?:'?[0-9A-Za-z_.]|(?<=[eEpP])[+-])*)
    | (?P<punct><<<|>>>|<<=|>>=|\.\.\.|->\*|->|::|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """One preprocessing token. ``lead`` is the blank text before it (newlines and spaces only)."""

    kind: str
    text: str
    lead: str
    line: int
    """1-based line on which the token starts."""
    first: bool = False
    """First token of its logical line (a spliced line does not start a new one)."""

    def led_by(self, lead: str) -> Token:
        return self._replace(lead=lead)


def tokenize(text: str, line: int = 1) -> list[Token]:
    """Split ``text`` into tokens; the last one is an ``end`` token that carries the trailing blank."""
    tokens: list[Token] = []
    lead: list[str] = []
    first = True
    for match in _TOKEN.finditer(text):
        kind, raw = match.lastgroup or "punct", match.group()
        if kind in ("name", "punct", "number"):
            tokens.append(Token(kind, raw, "".join(lead) if lead else "", line, first))
            lead, first = [], False
            continue
        if kind == "fence":
            kind = "string"
        newlines = raw.count("\n")
        if kind in ("space", "newline", "comment"):
            lead.append("\n" * newlines or " ")
            first = first or kind == "newline"
        else:
            tokens.append(Token(kind, raw, "".join(lead), line, first))
            lead, first = [], False
        line += newlines
    tokens.append(Token("end", "", "".join(lead), line, True))
    return tokens


def untokenize(tokens: list[Token]) -> str:
    return "".join(token.lead + token.text for token in tokens)


_CLOSERS = {"(": ")", "[": "]", "{": "}"}


def matching(tokens: list[Token], start: int, end: int | None = None) -> int | None:
    """Index of the bracket that closes ``tokens[start]``, or None where it is not closed before ``end``."""
    stack: list[str] = []
    for index in range(start, len(tokens) if end is None else end):
        text = tokens[index].text
        if tokens[index].kind != "punct":
            continue
        if text in _CLOSERS:
            stack.append(_CLOSERS[text])
        elif text in (")", "]", "}"):
            if not stack or stack.pop() != text:
                return None
            if not stack:
                return index
    return None


def closing_angle(tokens: list[Token], start: int) -> int | None:
    """Index of the ``>`` that closes the template bracket at ``tokens[start]`` (``>>`` counts twice)."""
    depth, index = 0, start
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "{"):
            close = matching(tokens, index)
            if close is None:
                return None
            index = close
        elif text == "<":
            depth += 1
        elif text in (">", ">>", ">>>"):
            depth -= len(text)
            if depth <= 0:
                return index
        elif text in (";", "}", ")", "<<<"):
            return None
        index += 1
    return None


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """Split at the commas outside every bracket, template brackets included."""
    parts: list[list[Token]] = [[]]
    depth = angle = 0
    for token in tokens:
        text = token.text if token.kind == "punct" else ""
        if text in ("(", "[", "{"):
            depth += 1
        elif text in (")", "]", "}"):
            depth -= 1
        elif text == "<" and depth == 0:
            angle += 1
        elif text in (">", ">>") and depth == 0:
            angle = max(0, angle - len(text))
        if text == "," and depth == 0 and angle == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def plain_text(tokens: list[Token]) -> str:
    """The tokens on one line, a space only where two words would otherwise run together."""
    out = ""
    for token in tokens:
        if (
            out
            and (out[-1].isalnum() or out[-1] == "_")
            and (token.text[:1].isalnum() or token.text[:1] == "_")
        ):
            out += " "
        out += token.text
    return out
