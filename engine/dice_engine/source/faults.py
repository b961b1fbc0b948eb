"""Where a file stops being one: the line that a compiler would name first."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from pathlib import PurePath

from dice_engine.source.cuda_lex import lex
from dice_engine.source.document_holes import PYTHON_SUFFIXES
from dice_engine.source.hole import Hole
from dice_engine.source.lines import to_bytes

_OPENING = {")": "(", "}": "{"}


def syntax_error(text: str, path: str, holes: Sequence[Hole]) -> str | None:
    """``line 3: '(' was never closed``, None for a file that can be read. ``holes``: what was found in it.

    Of CUDA only brackets and comments are looked at, and only where nothing was found: what a file means without its
    headers nobody knows.
    """
    if PurePath(path).suffix.lower() not in PYTHON_SUFFIXES:
        return None if holes else _unbalanced(to_bytes(text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}"
    except (ValueError, RecursionError) as error:
        return f"line 1: {error}"
    return None


def _unbalanced(data: bytes) -> str | None:
    lexed, open_ones = lex(data), []
    for token in lexed.tokens:
        if token.kind in ("(", "{"):
            open_ones.append(token)
        elif token.kind == "unclosed":
            return f"line {_line(data, token.start)}: a comment is never closed"
        elif token.kind == "directive" and lexed.directive(token)[0] in ("else", "elif"):
            return None  # either branch may have the bracket
        elif token.kind in _OPENING:
            if not open_ones or open_ones[-1].kind != _OPENING[token.kind]:
                return f"line {_line(data, token.start)}: unmatched '{token.kind}'"
            open_ones.pop()
    if open_ones:
        return f"line {_line(data, open_ones[-1].start)}: '{open_ones[-1].kind}' was never closed"
    return None


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1
