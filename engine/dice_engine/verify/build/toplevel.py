"""Top-level declarations of a CUDA source by brackets and semicolons: where each starts, ends, and what it names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dice_engine.verify.build.lexer import Token, live_tokens, match_angle, match_close, read_macros, tokenize

Macros = dict[str, tuple[bool, str]]
ATTRIBUTES = frozenset(
    [
        "__launch_bounds__",
        "__align__",
        "alignas",
        "__attribute__",
        "decltype",
        "__declspec",
        "__cluster_dims__",
        "__maxnreg__",
        "__block_size__",
        "noexcept",
        "explicit",
        "requires",
    ]
)
"""Words whose parentheses are not a parameter list."""
REGISTRATIONS = ("PYBIND11_", "TORCH_LIBRARY", "BOOST_PYTHON")


@dataclass
class Item:
    """One top-level declaration. ``role``: device, host, neutral (kept unless it needs host things), keep."""

    tokens: Sequence[Token]
    namespace: tuple[str, ...]
    role: str = "neutral"
    kernel: str | None = None


def items_of(
    tokens: Sequence[Token],
    index: int,
    end: int,
    namespace: tuple[str, ...],
    macros: Macros,
) -> Iterator[Item]:
    """Top-level declarations in ``tokens[index:end]``, those inside namespaces and ``extern "C"`` included."""
    while index < end:
        token = tokens[index]
        if token.kind == "pp" or token.text in ("}", ";"):
            index += 1
            continue
        scope = _scope_opening(tokens, index, end)
        if scope is not None:
            names, brace = scope
            close = min(match_close(tokens, brace), end)
            yield from items_of(tokens, brace + 1, close, namespace + names, macros)
            index = close + 1
            continue
        stop = _macro_call_end(tokens, index, end, macros) or _item_end(tokens, index, end)
        yield Item(tokens[index:stop], namespace)
        index = stop


def _scope_opening(tokens: Sequence[Token], index: int, end: int) -> tuple[tuple[str, ...], int] | None:
    """Names and brace of ``namespace a::b {`` or ``extern "C" {`` at ``index``."""
    words = [t.text for t in tokens[index : index + 12]]
    if words[0] == "inline" and words[1:2] == ["namespace"]:
        index, words = index + 1, words[1:]
    if words[0] == "extern" and index + 2 < end and tokens[index + 1].kind == "str" and words[2] == "{":
        return (), index + 2
    if words[0] == "namespace" and "{" in words:
        inside = words[1 : words.index("{")]
        if all(w == "::" or w.isidentifier() for w in inside):
            return tuple(w for w in inside if w != "::"), index + words.index("{")
    return None


def _macro_call_end(tokens: Sequence[Token], index: int, end: int, macros: Macros) -> int | None:
    """End of a function-like macro's call that stands as a declaration: ``MAKE(x)``, ``PYBIND11_MODULE(..) {..}``."""
    name = tokens[index].text
    takes_arguments, body = macros.get(name, (False, ""))
    known = takes_arguments and re.search(r"[;{}]", body)
    registers = name.startswith(REGISTRATIONS)
    if not (known or registers) or index + 1 >= end or tokens[index + 1].text != "(":
        return None
    close = match_close(tokens, index + 1) + 1
    if close < end and tokens[close].text == "{" and not body.rstrip().endswith(("}", ";")):
        close = match_close(tokens, close) + 1
    elif close < end and tokens[close].text == ";":
        close += 1
    return min(close, end)


def _item_end(tokens: Sequence[Token], index: int, end: int) -> int:
    """One past the declaration that starts at ``index``: its ``;``, or the ``}`` of its function body."""
    position = index
    called = assigned = False
    while position < end:
        text = tokens[position].text if tokens[position].kind in ("punct", "id") else ""
        if text in (";", "}"):  # a stray brace ends it too: the end of a scope that we did not see open
            return position + 1
        if text == "template" and position + 1 < end and tokens[position + 1].text == "<":
            position = match_angle(tokens, position + 1)
        elif text == "operator":
            position += 1 if position + 1 < end and tokens[position + 1].text not in ("=", "(") else 2
        elif text == "=":
            assigned = True
        elif text in ("(", "[", "{"):
            close = match_close(tokens, position)
            if text == "(":
                called = called or tokens[max(position - 1, index)].text not in ATTRIBUTES
            if (called or close >= end) and not assigned:  # text being typed: brackets that never close
                inside = range(position, min(close, end))
                kernel = next((p for p in inside if tokens[p].text == "__global__"), None)
                if kernel is not None:
                    return _declaration_start(tokens, kernel, position)
            if text == "{" and called and not assigned:
                return min(close + 1, end)
            position = close
        position += 1
    return end


def _declaration_start(tokens: Sequence[Token], kernel: int, least: int) -> int:
    """Where the declaration around the ``__global__`` at ``kernel`` starts: its template header and specifiers."""
    start = kernel
    while start - 1 > least and tokens[start - 1].text in ("static", "inline", "extern", '"C"'):
        start -= 1
    if tokens[start - 1].text == ">":
        for back in range(start - 1, least, -1):
            if tokens[back].text == "template" and match_angle(tokens, back + 1) == start - 1:
                return back
    return start


def head_of(tokens: Sequence[Token]) -> tuple[Sequence[Token], bool]:
    """The tokens before a body or an initialiser, template header left out, and whether they declare a function."""
    position = 0
    while position + 1 < len(tokens) and tokens[position].text == "template":
        position = match_angle(tokens, position + 1) + 1 if tokens[position + 1].text == "<" else position + 1
    start, called = position, False
    while position < len(tokens):
        text = tokens[position].text
        if text in ("=", ";", "{"):
            break
        if text == "operator":
            position += 1
        elif text in ("(", "["):
            before = tokens[position - 1].text if position > start else ""
            called = called or (text == "(" and position > start and before not in ATTRIBUTES)
            position = match_close(tokens, position)
        position += 1
    head = tokens[start:position]
    return head, called and head[0].text not in ("using", "typedef", "static_assert")


def function_name(head: Sequence[Token]) -> str | None:
    """The name before the parameter list; None for operators."""
    for position, token in enumerate(head):
        before = head[position - 1] if position else token
        if token.text == "(" and before.kind == "id" and before.text not in ATTRIBUTES:
            return before.text
    return None


def declared_names(tokens: Sequence[Token]) -> set[str]:
    """Names that the declaration introduces: its function, or its types, variables and aliases (a small superset)."""
    head, is_function = head_of(tokens)
    name = function_name(head) if is_function else None
    if name:
        return {name}
    end = head[-1].end if head else 0
    # The token after the head, `{` or `=`, tells which of its words is the name.
    words = [*head, *(t for t in tokens if t.start >= end)][: len(head) + 1]
    following = itertools.pairwise(words)
    return {
        t.text
        for t, after in following
        if t.kind == "id" and after.text in ("{", "=", ";", "[", ":", "<", ",")
    }


def declared_bodies(text: str) -> dict[str, set[str]]:
    """Name of each function, type or variable that ``text`` declares -> the words in its declaration."""
    tokens = live_tokens(tokenize(text))
    bodies: dict[str, set[str]] = {}
    for item in items_of(tokens, 0, len(tokens), (), read_macros(tokens)):
        for name in declared_names(item.tokens):
            bodies.setdefault(name, set()).update(t.text for t in item.tokens if t.kind == "id")
    return bodies
