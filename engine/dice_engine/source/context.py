"""What of a long file the model needs to see around a kernel: what the kernel uses, and what stands nearest to it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dice_engine.source.cuda_lex import lex
from dice_engine.source.lines import to_bytes, to_text

ENOUGH = 8_000
"""Bytes of prefix that are kept whatever they are; a shorter file is shown as it is."""
_WORD = re.compile(rb"[A-Za-z_]\w*")
_DEFINE = re.compile(rb"#[ \t]*define[ \t]+(\w+)")
_INCLUDE = b"#include"
"""Stands among the names: every kernel wants the includes."""
_NEAR = 2_000
"""Bytes right above the kernel that stay in any case."""


def shortened(prefix: str, core: str, limit: int = ENOUGH) -> str:
    """A prefix of at most about ``limit`` bytes for a kernel in a long file: the definitions that it uses (macros,
    constants, device functions, types; also those that these use), in their order, and the text right above it."""
    data = to_bytes(prefix)
    if len(data) <= limit:
        return prefix
    near = data.rfind(b"\n", 0, len(data) - _NEAR) + 1
    pieces = list(_pieces(data[:near]))
    wanted = {_INCLUDE} | set(_WORD.findall(to_bytes(core))) | set(_WORD.findall(data[near:]))
    kept: set[int] = set()
    size = len(data) - near
    changed = True
    while changed:
        changed = False
        for index in range(len(pieces) - 1, -1, -1):
            names, text = pieces[index]
            if index not in kept and names & wanted and size + len(text) <= limit:
                kept.add(index)
                size += len(text)
                wanted |= set(_WORD.findall(text))
                changed = True
    return to_text(b"".join(text for index, (_, text) in enumerate(pieces) if index in kept) + data[near:])


def _pieces(data: bytes) -> Iterable[tuple[set[bytes], bytes]]:
    """The top-level pieces of a text (a preprocessor line, a declaration, a function), with the names they define.

    Kernels define nothing for others and have no names.
    """
    lexed = lex(data)
    start = depth = 0
    for token in lexed.tokens:
        if token.kind == "directive" and depth == 0:
            line = data[token.start : token.end]
            define = _DEFINE.match(line)
            names = (
                {define.group(1)}
                if define
                else {_INCLUDE}
                if line[1:].lstrip().startswith(b"include")
                else set()
            )
            yield names, data[start : token.end] + b"\n"
            start = min(len(data), token.end + 1)
        elif token.kind in ("{", "("):
            depth += 1
        elif token.kind in ("}", ")"):
            depth = max(0, depth - 1)
            if token.kind == "}" and depth == 0:
                yield _defined(lexed.code(start, token.end)), data[start : token.end] + b"\n"
                start = token.end
        elif token.kind == ";" and depth == 0:
            yield _defined(lexed.code(start, token.end)), data[start : token.end] + b"\n"
            start = token.end


def _defined(code: bytes) -> set[bytes]:
    """The names that a declaration gives: what stands before its first ``(``, ``=``, ``{``, ``[`` or ``;``."""
    if b"__global__" in code:
        return set()
    head = re.split(rb"[({=\[;]", code, maxsplit=1)[0]
    words = _WORD.findall(head)
    # ``struct A {`` and ``float f(`` alike: the last word; ``using A = B`` too.
    return {words[-1]} if words else set()
