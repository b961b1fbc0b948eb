"""A tolerant CUDA C++ lexer: tokens with offsets, and which preprocessor branches are dead.

The splitter works on tokens, not on a grammar: real sources contain launch-bound macros, macro invocations
without a semicolon and preprocessor branches that no grammar parses, and text being typed must not stop it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<ws>(?:\s|\\\n)+)
      |(?P<comment>//(?:[^\\\n]|\\.|\\\n)*|/\*.*?(?:\*/|\Z))
      |(?P<raw>(?:u8|[uUL])?R"(?P<delim>[^()\\\s]{0,16})\(.*?(?:\)(?P=delim)"|\Z))
      |(?P<str>(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*(?:"|(?=\n)|\Z))
      |(?P<chr>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
      |(?P<num>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[\w.])*)
      |(?P<id>[^\W\d][\w$]*)
      |(?P<punct>::|->|\#\#|.)""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"#(?:[^\\\n/]|\\\n|\\.|/(?![/*])|/\*.*?\*/)*", re.DOTALL)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(_OPEN.values())


@dataclass(frozen=True)
class Token:
    """``kind``: id, num, str, chr, raw, punct, or pp for a whole preprocessor directive."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """Tokens of ``text`` (``\\n`` line ends) without comments; unterminated literals end at their line's end."""
    tokens: list[Token] = []
    position, line_start = 0, True
    while position < len(text):
        if line_start and text[position] == "#":
            match = _DIRECTIVE.match(text, position)
            assert match is not None
            tokens.append(Token("pp", match.group(), position, match.end()))
            position, line_start = match.end(), False
            continue
        match = _TOKEN.match(text, position)
        assert match is not None  # the last alternative takes any character
        kind = match.lastgroup if match.lastgroup != "delim" else "raw"
        if kind == "ws":
            line_start = line_start or "\n" in match.group()
        elif kind != "comment":
            tokens.append(Token(str(kind), match.group(), position, match.end()))
            line_start = False
        position = match.end()
    return tokens


def match_close(tokens: Sequence[Token], index: int) -> int:
    """Index of the token that closes the bracket at ``index``; ``len(tokens)`` when nothing does."""
    stack: list[str] = []
    for position in range(index, len(tokens)):
        text = tokens[position].text if tokens[position].kind == "punct" else ""
        if text in _OPEN:
            stack.append(_OPEN[text])
        elif text in _CLOSE:
            while stack and stack[-1] != text:  # a stray bracket inside: the outer one wins
                stack.pop()
            if stack:
                stack.pop()
            if not stack:
                return position
    return len(tokens)


def match_angle(tokens: Sequence[Token], index: int) -> int:
    """Index of the ``>`` that closes the ``<`` at ``index``; ``len(tokens)`` when nothing does."""
    depth, position = 0, index
    while position < len(tokens):
        text = tokens[position].text if tokens[position].kind == "punct" else ""
        if text in _OPEN:
            position = match_close(tokens, position)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return position
        elif text in (";", "}"):
            break
        position += 1
    return len(tokens)


def directive_name(text: str) -> str:
    match = re.match(r"#\s*(\w+)", text)
    return match.group(1) if match else ""


def read_macros(tokens: Sequence[Token]) -> dict[str, tuple[bool, str]]:
    """Name -> (takes arguments, body's text) of the macros that the directives among ``tokens`` define."""
    macros: dict[str, tuple[bool, str]] = {}
    for token in tokens:
        if token.kind == "pp" and directive_name(token.text) == "define":
            match = re.match(
                r"#\s*define\s+(\w+)(\([^)]*\))?(.*)", token.text.replace("\\\n", "  "), re.DOTALL
            )
            if match:
                macros[match.group(1)] = (match.group(2) is not None, match.group(3))
    return macros


def _condition(text: str, defined: set[str]) -> bool | None:
    """The value of an ``#if``-like directive where it is sure, else None."""
    name = directive_name(text)
    rest = re.sub(r"/\*.*?\*/|^#\s*\w+", "", text.replace("\\\n", " "), flags=re.DOTALL).strip()
    if name in ("ifdef", "ifndef"):
        rest = f"defined({rest})" if name == "ifdef" else f"!defined({rest})"
    if rest in ("0", "1"):
        return rest == "1"
    match = re.fullmatch(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?", rest)
    if match is None:
        return None
    symbol, negated = match.group(2), match.group(1) == "!"
    if symbol in defined or symbol in ("__CUDACC__", "__cplusplus", "__NVCC__"):
        return not negated
    if symbol.startswith(("__HIP", "USE_ROCM")) or not symbol.startswith(("_", "CUDA", "CUDART", "USE_CUDA")):
        return negated
    return None


def _net_braces(tokens: Sequence[Token]) -> int:
    return sum({"{": 1, "}": -1}.get(t.text, 0) for t in tokens if t.kind == "punct")


def live_tokens(tokens: Sequence[Token]) -> list[Token]:
    """``tokens`` without those in branches that are surely dead; the directives of the branches stay.

    Where a condition is not known, all branches stay if each balances its braces, else the first one only, so
    that braces match.
    """
    live: list[Token] = []
    index, defined = 0, set[str]()
    while index < len(tokens):
        part, index = _live(tokens, index, defined)
        live += part
        index += 1  # an #else or #endif without its #if
    return live


def _live(tokens: Sequence[Token], index: int, defined: set[str]) -> tuple[list[Token], int]:
    """Live tokens from ``index`` to the ``#else``, ``#elif`` or ``#endif`` that ends this part; and where that is."""
    out: list[Token] = []
    while index < len(tokens):
        token = tokens[index]
        name = directive_name(token.text) if token.kind == "pp" else ""
        if name in ("else", "elif", "endif"):
            return out, index
        index += 1
        if name in ("if", "ifdef", "ifndef"):
            group, index = _live_group(tokens, index - 1, defined)
            out += group
            continue
        out.append(token)
        if name in ("define", "undef"):
            match = re.match(r"#\s*\w+\s+(\w+)", token.text)
            if match:
                (defined.add if name == "define" else defined.discard)(match.group(1))
    return out, index


def _live_group(tokens: Sequence[Token], index: int, defined: set[str]) -> tuple[list[Token], int]:
    """Live tokens of the ``#if`` group at ``index``, and one past its ``#endif``."""
    branches: list[tuple[Token, bool | None, list[Token], set[str]]] = []
    decided = False
    while index < len(tokens):
        token, name = tokens[index], directive_name(tokens[index].text)
        if name == "endif":
            break
        value = True if name == "else" else _condition(token.text, defined)
        inner = set(defined)
        body, index = _live(tokens, index + 1, inner)
        branches.append((token, False if decided else value, body, inner))
        decided = decided or value is True
    alive = [body for _, value, body, _ in branches if value is not False]
    if any(_net_braces(body) for body in alive):
        alive = alive[:1]
    out: list[Token] = []
    for token, _, body, inner in branches:
        out.append(token)
        if any(body is one for one in alive):
            out += body
            defined |= inner
    return out + list(tokens[index : index + 1]), index + 1
