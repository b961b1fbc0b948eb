"""Where the kernels of a CUDA text are, by two scanners that must agree.

tree-sitter-cuda reads well-formed text and much of the rest; a lexer started at each ``__global__`` finds the kernels
that the grammar loses while somebody types. A kernel is editable when both give the same body, or when the lexer
alone finds one whose braces balance and that holds no second ``__global__``.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass

import tree_sitter
import tree_sitter_cuda

from dice_engine.source.cuda_lex import BYTE_ORDER_MARK, Lexed, Token, lex
from dice_engine.source.cuda_scan import Body, function_inside, scan, surroundings
from dice_engine.source.cuda_signature import Signature, declaration_start, read_signature
from dice_engine.source.lines import to_bytes
from dice_engine.source.plan import Param


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


def find_kernels(text: str) -> list[KernelSpan]:
    """All kernels written out in ``text``, in order, editable or not.

    Kernels that a macro makes have no body of their own and are not listed; neither are prototypes.
    """
    return list(_find(text)) if "__global__" in text else []


@functools.lru_cache(maxsize=6)
def _find(text: str) -> tuple[KernelSpan, ...]:
    data = to_bytes(text)
    lexed = lex(data)
    around = surroundings(lexed)
    starts = [i for i, token in enumerate(lexed.tokens) if token.kind == "__global__"]
    bodies = {i: body for i in starts if (body := scan(lexed, i)) is not None}
    grammar, broken = _grammar_bodies(data)
    balanced = sum((t.kind == "{") - (t.kind == "}") for t in lexed.tokens) == 0
    unbalanced = broken and not balanced
    if balanced:
        TREES.balanced.add(data)
    kernels = []
    for index, body in bodies.items():
        token = lexed.tokens[index]
        signature = read_signature(lexed, token, body.open)
        if signature is None:
            continue
        dead, conditional = around[index]
        reason = _reason(lexed, token, body, signature, grammar.get(token.start), dead, unbalanced)
        kernels.append(_span(lexed, token, body, signature, reason, conditional))
    return tuple(kernels)


def _span(
    lexed: Lexed, token: Token, body: Body, signature: Signature, reason: str | None, conditional: bool
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
        if lexed.code(line, skip.start).removeprefix(BYTE_ORDER_MARK).strip():
            break
        found.append((skip.start, skip.end))
        start = skip.start
    return tuple(reversed(found))


def _reason(
    lexed: Lexed,
    token: Token,
    body: Body,
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
    names = (signature.name, *(param.name for param in signature.params))
    foreign = next((name for name in names if not name.isascii()), None)
    if foreign is not None:
        return f"CUDA compilers take no name with letters outside ASCII: {foreign}"
    if body.conditionals:
        return body.conditionals
    if body.unclosed_comment is not None:
        return f"the comment that begins on line {line(body.unclosed_comment)} is not closed"
    if body.close is None:
        return f"unfinished: {body.why_open}"
    inside = function_inside(lexed, body) if unbalanced else None
    if inside is not None:
        return f"unfinished: another function begins inside it, on line {line(inside)}"
    if grammar is not None and grammar != (body.open, body.close) and not body.branches:
        return "where its body ends is not certain: there is a syntax error in or before it"
    if dead:
        return "it lies in an #if branch that is never compiled"
    return None


@functools.cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_cuda.language())


def parse_cuda(data: bytes) -> tree_sitter.Tree:
    """The grammar's reading of a CUDA text, right or not."""
    return tree_sitter.Parser(_language()).parse(data)


@functools.cache
def _query() -> tree_sitter.Query:
    return tree_sitter.Query(
        _language(), '(function_definition "__global__" @global body: (compound_statement) @body)'
    )


class Trees:
    """The grammar's trees of the texts read last: after an edit only what it touches is parsed again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._trees: OrderedDict[bytes, tree_sitter.Tree] = OrderedDict()
        self._lock = threading.Lock()
        self.balanced: set[bytes] = set()
        """The texts among these whose braces are known to balance."""

    def tree(self, data: bytes, edit: tuple[bytes, int, int, int] | None = None) -> tree_sitter.Tree:
        """The tree of ``data``; ``edit``: the text before, and the start, end and new size of what was replaced."""
        with self._lock:
            tree = self._trees.get(data)
            old = self._trees.get(edit[0]) if edit is not None else None
        if tree is None:
            parser = tree_sitter.Parser(_language())
            if old is not None and edit is not None:
                before, start, end, size = edit
                old = old.copy()  # somebody else may be reading it
                old.edit(
                    start,
                    end,
                    start + size,
                    _point(before, start),
                    _point(before, end),
                    _point(data, start + size),
                )
                tree = parser.parse(data, old)
            else:
                tree = parser.parse(data)
        with self._lock:
            self._trees[data] = tree
            while len(self._trees) > self._most:
                self._trees.popitem(last=False)
            self.balanced &= self._trees.keys()
        return tree


def _point(data: bytes, offset: int) -> tuple[int, int]:
    return data.count(b"\n", 0, offset), offset - data.rfind(b"\n", 0, offset) - 1


TREES = Trees(2)


def bodies_by_grammar(tree: tree_sitter.Tree) -> dict[int, tuple[int, int]]:
    """For each ``__global__`` with a body, by its offset: the offsets of the body's braces."""
    bodies: dict[int, tuple[int, int]] = {}
    for _, captures in tree_sitter.QueryCursor(_query()).matches(tree.root_node):
        marks, body = captures["global"], captures["body"][0]
        if body.children and body.children[-1].type == "}" and not body.children[-1].is_missing:
            for mark in marks:
                bodies[mark.start_byte] = (body.start_byte, body.end_byte - 1)
    return bodies


def _grammar_bodies(data: bytes) -> tuple[dict[int, tuple[int, int]], bool]:
    """Per ``__global__`` offset the offsets of the body's braces, and whether the text has syntax errors."""
    tree = TREES.tree(data)
    return bodies_by_grammar(tree), tree.root_node.has_error
