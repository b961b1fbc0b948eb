"""A selection inside a kernel, widened to whole statements, as a hole of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import tree_sitter

from dice_engine.source.cuda import parse_cuda
from dice_engine.source.hole import Hole
from dice_engine.source.lines import to_bytes

_OPEN = b"void f() {"


def select(holes: Iterable[Hole], start: int, end: int) -> Hole | None:
    """The hole for the bytes ``start`` to ``end`` of a document with these ``holes``; None outside of kernels.

    It covers the statements that the selection touches, on the innermost level that holds all of it. A selection
    that reaches out of the body, covers all of it, or touches a syntax error means the whole body.
    """
    body = next(
        (h for h in holes if h.kind == "kernel_body" and h.anchor[0] <= start and end <= h.anchor[1]), None
    )
    if body is None or not body.editable:
        return body
    core = to_bytes(body.core)
    statements = _touched(core, start - body.start_byte, end - body.start_byte)
    if statements is None:
        return body
    first, last = statements
    return replace(
        body, kind="selection", start_byte=body.start_byte + first, end_byte=body.start_byte + last
    )


def _touched(core: bytes, start: int, end: int) -> tuple[int, int] | None:
    """The range in ``core`` of the statements that ``start``..``end`` touches, or None for the whole of it."""
    if start < 0 or end > len(core):
        return None
    start, end = _without_spaces(core, start, end)
    root = parse_cuda(_OPEN + core + b"}").root_node
    start, end = start + len(_OPEN), end + len(_OPEN)
    block = _innermost(root, start, end)
    statements = [child for child in block.named_children if child.type != "comment"] if block else []
    touched = [
        i for i, one in enumerate(statements) if one.start_byte < max(end, start + 1) and start < one.end_byte
    ]
    if not touched:
        return None
    first, last = touched[0], touched[-1]
    while first > 0 and statements[first - 1].type == "preproc_call":
        first -= 1  # a pragma belongs to the statement below it
    chosen = statements[first : last + 1]
    outermost = block is not None and block.start_byte == len(_OPEN) - 1
    if any(one.has_error for one in chosen) or (outermost and len(chosen) == len(statements)):
        return None
    return chosen[0].start_byte - len(_OPEN), chosen[-1].end_byte - len(_OPEN)


def _innermost(root: tree_sitter.Node, start: int, end: int) -> tree_sitter.Node | None:
    node = root.descendant_for_byte_range(start, max(start, end - 1))
    while node is not None:
        inside = node.start_byte < start and end < node.end_byte
        if node.type == "compound_statement" and inside:
            return node
        node = node.parent
    return None


def _without_spaces(core: bytes, start: int, end: int) -> tuple[int, int]:
    """The selection without the blanks around it; a cursor stays where it is, or goes to its line's code."""
    while start < end and core[start : start + 1].isspace():
        start += 1
    while end > start and core[end - 1 : end].isspace():
        end -= 1
    if start == end:
        line_end = core.find(b"\n", start)
        line = core[start : len(core) if line_end < 0 else line_end]
        if not line[: len(line) - len(line.lstrip())].strip() and line.strip():
            start += len(line) - len(line.lstrip())
        end = start
    return start, end
