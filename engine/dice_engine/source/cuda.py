"""Where the kernels of a CUDA text are, by two scanners that must agree.

tree-sitter-cuda reads well-formed text and much of the rest; a lexer started at each ``__global__`` finds the kernels
that the grammar loses while somebody types. A kernel is editable when both give the same body, or when the lexer
alone finds one whose braces balance and that holds no second ``__global__``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import tree_sitter
import tree_sitter_cuda

from dice_engine.source.cuda_lex import Lexed, Token, lex
from dice_engine.source.cuda_signature import Signature, declaration_start, read_signature
from dice_engine.source.lines import to_bytes
from dice_engine.source.plan import Param

_CONTROL = frozenset({"if", "for", "while", "switch", "catch", "sizeof", "return"})
_NO_ELSE = -1
"""Stands among the depths at the ends of an #if's branches as long as it has no #else."""
_NO_TYPE = frozenset({"else", "do", "return", "case", "new", "throw", "goto", "default"})


@dataclass(frozen=True)
class KernelSpan:
    """A kernel definition in a CUDA text; byte offsets, ends exclusive.

    ``body_start``..``body_end`` is what lies strictly between the braces; ``start``..``end`` the whole definition with
    ``template`` line and closing brace. ``reason`` says why a kernel that is not editable is not.
    """

    name: str
    start: int
    end: int
    body_start: int
    body_end: int
    editable: bool
    reason: str | None
    params: tuple[Param, ...]
    template_params: tuple[str, ...]
    """Names of the template parameters that have no default."""
    conditional: bool
    """Whether the definition lies inside an ``#if`` that has another branch."""
    comments: tuple[tuple[int, int], ...]
    """Byte ranges of the comments directly above the definition, in order."""


@dataclass
class _Body:
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


def find_kernels(text: str) -> list[KernelSpan]:
    """All kernels written out in ``text``, in order, editable or not.

    Kernels that a macro makes have no body of their own and are not listed; neither are prototypes.
    """
    return list(_find(text)) if "__global__" in text else []


@functools.lru_cache(maxsize=16)
def _find(text: str) -> tuple[KernelSpan, ...]:
    data = to_bytes(text)
    lexed = lex(data)
    surroundings = _surroundings(lexed)
    starts = [i for i, token in enumerate(lexed.tokens) if token.kind == "__global__"]
    bodies = {i: body for i in starts if (body := _scan(lexed, i)) is not None}
    grammar, broken = _grammar_bodies(data)
    unbalanced = broken and sum((t.kind == "{") - (t.kind == "}") for t in lexed.tokens) != 0
    kernels = []
    for index, body in bodies.items():
        token = lexed.tokens[index]
        signature = read_signature(lexed, token, body.open)
        if signature is None:
            continue
        dead, conditional = surroundings[index]
        reason = _reason(lexed, token, body, signature, grammar.get(token.start), dead, unbalanced)
        kernels.append(_span(lexed, token, body, signature, reason, conditional))
    return tuple(kernels)


def _span(
    lexed: Lexed, token: Token, body: _Body, signature: Signature, reason: str | None, conditional: bool
) -> KernelSpan:
    if body.close is not None:
        body_end, end = body.close, body.stop
    else:
        body_end = end = max(body.open + 1, len(lexed.data[: body.stop].rstrip()))
    return KernelSpan(
        name=signature.name,
        start=declaration_start(lexed, token),
        end=end,
        body_start=body.open + 1,
        body_end=body_end,
        editable=reason is None,
        reason=reason,
        params=signature.params,
        template_params=signature.template_params,
        conditional=conditional,
        comments=_comments_above(lexed, declaration_start(lexed, token)),
    )


def comment_spans(text: str) -> list[tuple[int, int]]:
    """Byte ranges of all comments of a CUDA text."""
    lexed = lex(to_bytes(text))
    return [(skip.start, skip.end) for skip in lexed.skips if skip.kind == "comment"]


def _comments_above(lexed: Lexed, start: int) -> tuple[tuple[int, int], ...]:
    """The comments that stand alone on the lines directly above ``start``, without a blank line between."""
    found: list[tuple[int, int]] = []
    for index in range(lexed.skip_index(start) - 1, -1, -1):
        skip = lexed.skips[index]
        between = lexed.data[skip.end : start]
        if skip.kind != "comment" or between.strip() or between.count(b"\n") > 1:
            break
        line = lexed.data.rfind(b"\n", 0, skip.start) + 1
        if lexed.code(line, skip.start).strip():
            break
        found.append((skip.start, skip.end))
        start = skip.start
    return tuple(reversed(found))


def _reason(
    lexed: Lexed,
    token: Token,
    body: _Body,
    signature: Signature,
    grammar: tuple[int, int] | None,
    dead: bool,
    unbalanced: bool,
) -> str | None:
    """Why the kernel cannot be edited, or None when it can."""

    def line(offset: int) -> int:
        return lexed.data.count(b"\n", 0, offset) + 1

    if signature.macro_name:
        return f"its name is made by the macro {signature.macro_name}"
    if body.conditionals:
        return body.conditionals
    if body.unclosed_comment is not None:
        return f"the comment that begins on line {line(body.unclosed_comment)} is not closed"
    if body.close is None:
        return f"unfinished: {body.why_open}"
    inside = _function_inside(lexed, body) if unbalanced else None
    if inside is not None:
        return f"unfinished: another function begins inside it, on line {line(inside)}"
    if grammar is not None and grammar != (body.open, body.close) and not body.branches:
        return "where its body ends is not certain: there is a syntax error in or before it"
    if dead:
        return "it lies in an #if branch that is never compiled"
    return None


def _scan(lexed: Lexed, index: int) -> _Body | None:
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


def _scan_body(lexed: Lexed, opening: int) -> _Body:
    """Match the braces from ``opening``; every branch of an ``#if`` starts at the depth where the first one did."""
    body = _Body(open=lexed.tokens[opening].start, close=None, stop=len(lexed.data))
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
    lexed: Lexed, token: Token, body: _Body, conditionals: list[tuple[int, int, set[int]]], depth: int
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


def _function_inside(lexed: Lexed, body: _Body) -> int | None:
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


def _surroundings(lexed: Lexed) -> dict[int, tuple[bool, bool]]:
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


@functools.cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_cuda.language())


@functools.cache
def _query() -> tree_sitter.Query:
    return tree_sitter.Query(
        _language(), '(function_definition "__global__" @global body: (compound_statement) @body)'
    )


def _grammar_bodies(data: bytes) -> tuple[dict[int, tuple[int, int]], bool]:
    """Per ``__global__`` offset the offsets of the body's braces, and whether the text has syntax errors."""
    root = tree_sitter.Parser(_language()).parse(data).root_node
    bodies: dict[int, tuple[int, int]] = {}
    for _, captures in tree_sitter.QueryCursor(_query()).matches(root):
        marks, body = captures["global"], captures["body"][0]
        if body.children and body.children[-1].type == "}" and not body.children[-1].is_missing:
            for mark in marks:
                bodies[mark.start_byte] = (body.start_byte, body.end_byte - 1)
    return bodies, root.has_error
