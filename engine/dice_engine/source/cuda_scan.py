"""Reading on from one ``__global__``: the body's braces, and the preprocessor conditionals in and around it."""

from __future__ import annotations

from dataclasses import dataclass

from dice_engine.source.cuda_lex import Lexed, Token
from dice_engine.source.cuda_signature import declaration_start

_CONTROL = frozenset({"if", "for", "while", "switch", "catch", "sizeof", "return"})
_NO_ELSE = -1
"""Stands among the depths at the ends of an #if's branches as long as it has no #else."""
_NO_TYPE = frozenset({"else", "do", "return", "case", "new", "throw", "goto", "default"})


@dataclass
class Body:
    """What the lexer makes of the text after one ``__global__``."""

    open: int
    close: int | None
    """Offset of the closing brace; None when the kernel is unfinished."""
    stop: int
    """Where reading stopped: after the closing brace, or at what showed that there is none."""
    why_open: str = ""
    conditionals: str | None = None
    branches: bool = False
    unclosed_comment: int | None = None


def scan(lexed: Lexed, index: int) -> Body | None:
    """Read on from one ``__global__``; None for a prototype, an instantiation, or a signature without a body."""
    opening = _find_opening(lexed, index)
    return None if opening is None else _scan_body(lexed, opening)


def _find_opening(lexed: Lexed, index: int) -> int | None:
    """The token index of the body's opening brace."""
    depth = 0
    saved: list[int] = []
    for i in range(index + 1, len(lexed.tokens)):
        token = lexed.tokens[i]
        if token.kind == "(":
            depth += 1
        elif token.kind == ")":
            depth -= 1
        elif token.kind == "{" and depth == 0:
            return i
        elif token.kind == "directive":
            word, _ = lexed.directive(token)
            if word in ("if", "ifdef", "ifndef"):
                saved.append(depth)
            elif word in ("else", "elif", "elifdef", "elifndef"):
                if not saved:
                    return None  # another branch goes on with another signature
                depth = saved[-1]
            elif word == "endif" and saved:
                saved.pop()
        elif token.kind in (";", "{", "}", "__global__", "unclosed"):
            return None
    return None


def _scan_body(lexed: Lexed, opening: int) -> Body:
    """Match the braces from ``opening``; every branch of an ``#if`` starts at the depth where the first one did."""
    body = Body(open=lexed.tokens[opening].start, close=None, stop=len(lexed.data))
    body.why_open = "its closing brace is missing"
    depth = 1
    conditionals: list[
        tuple[int, int, set[int]]
    ] = []  # offset of #if, depth there, depths at the ends of branches
    for i in range(opening + 1, len(lexed.tokens)):
        token = lexed.tokens[i]
        if token.kind == "{":
            depth += 1
        elif token.kind == "}":
            depth -= 1
            if depth == 0:
                body.close, body.stop = token.start, token.end
                if conditionals:
                    body.conditionals = body.conditionals or _line_reason(
                        lexed, "the #if on line {} ends outside its body", conditionals[-1][0]
                    )
                return body
        elif token.kind == "__global__":
            line = lexed.data.count(b"\n", 0, token.start) + 1
            body.stop, body.why_open = (
                declaration_start(lexed, token),
                f"another kernel begins on line {line} before its closing brace",
            )
            return body
        elif token.kind == "unclosed":
            body.unclosed_comment = body.unclosed_comment or token.start
        elif token.kind == "directive":
            depth = _conditional(lexed, token, body, conditionals, depth)
    return body


def _conditional(
    lexed: Lexed, token: Token, body: Body, conditionals: list[tuple[int, int, set[int]]], depth: int
) -> int:
    """Take one preprocessor line of a body into account; returns the brace depth after it."""
    word, _ = lexed.directive(token)
    if word in ("if", "ifdef", "ifndef"):
        conditionals.append((token.start, depth, {_NO_ELSE}))
    elif word in ("else", "elif", "elifdef", "elifndef", "endif"):
        if not conditionals:
            if body.conditionals is None:
                body.conditionals = _line_reason(
                    lexed, f"the #{word} on line {{}} belongs to an #if outside its body", token.start
                )
            return depth
        start, entry, ends = conditionals[-1]
        ends.add(depth)
        if word != "endif":
            body.branches = True
            if word == "else":
                ends.discard(_NO_ELSE)
            return entry
        conditionals.pop()
        if _NO_ELSE in ends:  # without #else nothing may be compiled at all
            ends.remove(_NO_ELSE)
            ends.add(entry)
        if len(ends) > 1 and body.conditionals is None:
            body.conditionals = _line_reason(
                lexed, "the branches of the #if on line {} open and close braces differently", start
            )
    return depth


def _line_reason(lexed: Lexed, template: str, offset: int) -> str:
    return template.format(lexed.data.count(b"\n", 0, offset) + 1)


def function_inside(lexed: Lexed, body: Body) -> int | None:
    """Where another function opens inside a body; only asked where the file's braces do not balance."""
    for i, token in enumerate(lexed.tokens):
        if token.kind == "{" and body.open < token.start < body.stop and _opens_function(lexed, i):
            return token.start
    return None


def _opens_function(lexed: Lexed, brace: int) -> bool:
    """Whether the brace at this token index opens a function: ``type name ( ... ) {`` and no control statement."""
    i = brace - 1
    if i < 0 or lexed.tokens[i].kind != ")":
        return False
    depth = 0
    while i >= 0:
        kind = lexed.tokens[i].kind
        depth += (kind == ")") - (kind == "(")
        if depth == 0:
            break
        if kind not in ("(", ")", "directive"):
            return False
        i -= 1
    if i <= 0:
        return False
    boundary = lexed.tokens[i - 1].end
    words = (
        lexed.code(boundary, lexed.tokens[i].start)
        .replace(b"*", b" ")
        .replace(b"&", b" ")
        .decode(errors="replace")
    )
    parts = words.split()
    named = all(
        part.replace(":", "").replace("_", "").replace("<", "").replace(">", "").isalnum() for part in parts
    )
    return len(parts) >= 2 and named and parts[-1] not in _CONTROL and parts[0] not in _NO_TYPE


def surroundings(lexed: Lexed) -> dict[int, tuple[bool, bool]]:
    """For each ``__global__`` token index: (never compiled, inside an #if that has another branch)."""
    found: dict[int, tuple[bool, bool]] = {}
    open_groups: list[list[int]] = []  # per #if: the kernels that it holds
    dead: list[bool] = []
    conditional: set[int] = set()
    has_else: list[bool] = []
    for i, token in enumerate(lexed.tokens):
        if token.kind == "__global__":
            found[i] = (any(dead), False)
            for group in open_groups:
                group.append(i)
        elif token.kind == "directive":
            word, rest = lexed.directive(token)
            if word in ("if", "ifdef", "ifndef"):
                open_groups.append([])
                has_else.append(False)
                dead.append(word == "if" and rest in ("0", "false"))
            elif word in ("else", "elif", "elifdef", "elifndef") and open_groups:
                has_else[-1] = True
                dead[-1] = False
            elif word == "endif" and open_groups:
                group, branched = open_groups.pop(), has_else.pop()
                dead.pop()
                if branched:
                    conditional.update(group)
    return {i: (never, i in conditional) for i, (never, _) in found.items()}
