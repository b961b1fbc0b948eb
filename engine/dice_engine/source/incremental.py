"""Holes after one edit of a CUDA text, without reading the rest of it again.

Most keys fall into the body or the head of a kernel or between functions and move everything below. Where an edit may
do more (braces, preprocessor lines, ``__global__``, annotations) the answer is None, and the whole text is to be read.
Plans are carried over: what an edit of a head or of host code means for them is for
:func:`dice_engine.source.holes.find_holes` to say.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from dice_engine.source.cuda import TREES, bodies_by_grammar
from dice_engine.source.cuda_lex import Lexed, lex
from dice_engine.source.cuda_scan import scan
from dice_engine.source.cuda_signature import declaration_start, read_signature
from dice_engine.source.hole import Hole
from dice_engine.source.lines import dominant_newline, to_text


def edited(holes: Sequence[Hole], new: bytes, start: int, end: int, size: int) -> list[Hole] | None:
    """The kernels of ``new``, which came from the holes' document by replacing ``start``..``end`` with ``size`` bytes.

    ``holes`` are all kernels of that document, in order; None when only reading all of ``new`` can tell.
    """
    if not holes or any(hole.kind != "kernel_body" or hole.string_content for hole in holes):
        return None
    old = holes[0].data
    found = _followed(holes, old, new, start, end, size)
    return found if found is not None and _grammar_agrees(found, old, new, start, end, size) else None


def same_plans(old: Sequence[Hole], new: Sequence[Hole], start: int, end: int, size: int) -> bool:
    """Whether an edit that was followed leaves every plan as it is, the lines that it names included."""
    inside = next((hole for hole in old if hole.start_byte <= start and end <= hole.end_byte), None)
    if inside is None or inside.plan.source in ("convention", "no_plan"):
        return False  # such a plan is read from the body
    before, after = old[0].data[start:end], new[0].data[start : start + size]
    return b"\n" not in before and b"\n" not in after


def _followed(
    holes: Sequence[Hole], old: bytes, new: bytes, start: int, end: int, size: int
) -> list[Hole] | None:
    """What the lexer says."""
    index = bisect_right(holes, start, key=lambda hole: hole.anchor[0]) - 1
    moved = size - (end - start)
    if index >= 0 and start < holes[index].anchor[1]:
        changed = _kernel(holes[index], old, new, start, end, moved)
        if changed is None:
            return None
        return [
            *(replace(hole, data=new) for hole in holes[:index]),
            changed,
            *(_shifted(hole, new, moved) for hole in holes[index + 1 :]),
        ]
    below = holes[index + 1 :]
    low = holes[index].anchor[1] if index >= 0 else 0
    high = below[0].anchor[0] if below else len(old)
    if end > high or not _same_gap(old[low:high], new[low : high + moved], bool(below)):
        return None
    return [replace(hole, data=new) for hole in holes[: index + 1]] + [
        _shifted(hole, new, moved) for hole in below
    ]


def _grammar_agrees(holes: list[Hole], old: bytes, new: bytes, start: int, end: int, size: int) -> bool:
    """Whether the grammar gives the bodies that the lexer gives, as it must for a kernel to be editable."""
    balanced = old in TREES.balanced  # the edit itself changes no balance
    tree = TREES.tree(new, (old, start, end, size))
    if balanced:
        TREES.balanced.add(new)
    if not tree.root_node.has_error:
        return True
    if not balanced:
        return False
    bodies = bodies_by_grammar(tree)
    for hole in holes:
        grammar = bodies.get(new.find(b"__global__", hole.anchor[0], hole.start_byte))
        if hole.editable and grammar is not None and grammar != (hole.start_byte - 1, hole.end_byte):
            return False
    return True


def _shifted(hole: Hole, new: bytes, by: int) -> Hole:
    return replace(
        hole,
        data=new,
        start_byte=hole.start_byte + by,
        end_byte=hole.end_byte + by,
        anchor=(hole.anchor[0] + by, hole.anchor[1] + by),
    )


def _kernel(hole: Hole, old: bytes, new: bytes, start: int, end: int, moved: int) -> Hole | None:
    """The kernel with its body or its head edited, when its braces are where they were and nothing else is in doubt."""
    if not hole.editable:
        return None
    first, opening = hole.anchor[0], hole.start_byte - 1
    in_body = opening < start and end <= hole.end_byte
    if not in_body and not (first < start and end <= opening):
        return None
    before, after = old[first : hole.anchor[1]], new[first : hole.anchor[1] + moved]
    if not _same_directives(before, after):
        return None
    lexed = lex(after)
    marks = [i for i, token in enumerate(lexed.tokens) if token.kind == "__global__"]
    body = scan(lexed, marks[0]) if len(marks) == 1 else None
    braces = (opening + (0 if in_body else moved) - first, hole.end_byte + moved - first)
    if body is None or (body.open, body.close) != braces:
        return None
    if body.conditionals or body.unclosed_comment is not None or _open_string(lexed):
        return None
    name = hole.name if in_body else _name(lexed, marks[0], body.open)
    if name is None:
        return None
    changed = replace(
        hole,
        name=name,
        data=new,
        start_byte=first + body.open + 1,
        end_byte=hole.end_byte + moved,
        anchor=(first, hole.anchor[1] + moved),
    )
    core = new[changed.start_byte : changed.end_byte]
    return replace(changed, newline=dominant_newline(to_text(core))) if b"\n" in core else changed


def _same_directives(before: bytes, after: bytes) -> bool:
    """Whether a kernel has the preprocessor lines that it had, and none that could mean more than a ``#pragma``."""
    if b"#" not in before and b"#" not in after:
        return True
    old, new = (
        [lexed.data[token.start : token.end] for token in lexed.tokens if token.kind == "directive"]
        for lexed in (lex(before), lex(after))
    )
    return old == new and all(line[1:].lstrip().startswith(b"pragma") for line in new)


def _name(lexed: Lexed, mark: int, opening: int) -> str | None:
    """The name in a kernel's edited head, when the declaration begins where it began."""
    token = lexed.tokens[mark]
    signature = read_signature(lexed, token, opening)
    if signature is None or signature.macro_name is not None or declaration_start(lexed, token) != 0:
        return None
    names = (signature.name, *(param.name for param in signature.params))
    return signature.name if all(name.isascii() for name in names) else None


def _open_string(lexed: Lexed) -> bool:
    """Whether a string or character literal ends with its line: scanners differ in what follows it."""
    return any(
        skip.kind == "string" and lexed.data[skip.end - 1] not in b"\"'" for skip in lexed.skips
    ) or any(skip.kind == "string" and skip.end - skip.start == 1 for skip in lexed.skips)


def _same_gap(old: bytes, new: bytes, kernel_below: bool) -> bool:
    """Whether the text between two kernels means the same to both as it did: it opens and closes nothing new."""
    if any(word in text for text in (old, new) for word in (b"@dice", b"__global__")):
        return False
    one, other = lex(old), lex(new)
    for lexed in (one, other):
        if any(token.kind == "unclosed" for token in lexed.tokens) or _open_string(lexed):
            return False
        if kernel_below and lexed.skips and lexed.skips[-1].end == len(lexed.data):
            return False  # a comment or preprocessor line that would run on into the kernel
        if kernel_below and _code_after_last_boundary(lexed):
            return False  # it may belong to the kernel's declaration
    return _structure(one) == _structure(other)


def _structure(lexed: Lexed) -> tuple[list[str], list[bytes]]:
    """Brackets in order, matched pairs gone, and the preprocessor lines."""
    left: list[str] = []
    for token in lexed.tokens:
        if token.kind in "})" and left and left[-1] == {"}": "{", ")": "("}[token.kind]:
            left.pop()
        elif token.kind in "{}()":
            left.append(token.kind)
    return left, [lexed.data[t.start : t.end] for t in lexed.tokens if t.kind == "directive"]


def _code_after_last_boundary(lexed: Lexed) -> bool:
    boundary = next((token.end for token in reversed(lexed.tokens) if token.kind not in ("(", ")")), 0)
    return bool(lexed.code(boundary, len(lexed.data)).strip())
