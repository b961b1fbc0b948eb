"""What stands around a ``__global__``: where the declaration begins, the kernel's name and its parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dice_engine.source.cuda_lex import Lexed, Token
from dice_engine.source.plan import Param

# Parenthesised groups in a signature that are not the parameter list.
_ATTRIBUTES = frozenset(
    {
        "__launch_bounds__",
        "__maxnreg__",
        "__cluster_dims__",
        "__block_size__",
        "__attribute__",
        "__declspec",
        "__align__",
        "alignas",
        "noexcept",
        "requires",
        "decltype",
    }
)
_LEADING = re.compile(
    r"(?:(?:\b(?:static|inline|extern|constexpr|void|auto|const|friend|__forceinline__|__noinline__|__host__)\b|\"C\""
    r"|\b(?:__launch_bounds__|__attribute__|__maxnreg__|__cluster_dims__)\s*\((?:[^()]|\([^()]*\))*\)"
    r"|\[\[[^\]]*\]\])\s*)+$"
)
_TEMPLATE = re.compile(r"\btemplate\s*<")
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct|typename|enum|class)\b"
)
# In Latin-1 text, where the letters of another alphabet are two characters and more, some of them no letters.
_NAME_AT_END = re.compile(r"((?:[A-Za-z_$]|[\x80-\xff])(?:[\w$]|[\x80-\xff])*)$")
_LAST_WORD = re.compile(r"((?:\w|[\x80-\xff])+)\s*$")


@dataclass(frozen=True)
class Signature:
    name: str
    params: tuple[Param, ...]
    template_params: tuple[str, ...]
    macro_name: str | None
    """The macro that makes the name, as in ``__global__ void NAME(cube)(float* x)``."""


def declaration_start(lexed: Lexed, token: Token) -> int:
    """The offset where the declaration of this ``__global__`` begins: at ``template``, ``extern "C"``, ``static``..."""
    boundary = _boundary(lexed, token)
    before = _latin(lexed.code(boundary, token.start), keep_c_linkage=lexed.data[boundary : token.start])
    template = _TEMPLATE.search(before)
    if template:
        return boundary + template.start()
    # Not from the boundary on: blanked comments may be thousands of spaces, and each would be tried.
    leading = _LEADING.search(before, len(before) - len(before.lstrip()))
    return boundary + leading.start() if leading else token.start


def read_signature(lexed: Lexed, token: Token, opening: int) -> Signature | None:
    """Name and parameters of the kernel whose ``__global__`` is ``token`` and whose body opens at ``opening``."""
    text = _latin(lexed.code(token.end, opening))
    group = _parameter_group(text)
    if group is None:
        return None
    start, end = group
    head = text[:start].rstrip()
    templates = _template_params(_latin(lexed.code(declaration_start(lexed, token), token.start)))
    macro = None
    if head.endswith(">"):
        head = _before_angle(head)
    if head.endswith(")"):
        before = _before_paren(head)
        macro = before[1]
        name = head[before[0] :].strip()
    else:
        found = _NAME_AT_END.search(head)
        if found is None:
            return None
        name = found.group(1)
    params_text = _original(lexed, token.end + start + 1, token.end + end)
    return Signature(_utf8(name), parse_params(params_text), templates, _utf8(macro) if macro else None)


def parse_params(text: str) -> tuple[Param, ...]:
    """The parameters of a parameter list's text, without its parentheses."""
    params = []
    for piece in split_top(text):
        declaration = piece.split("=")[0].strip()
        if not declaration or declaration == "void":
            continue
        pointer = "*" in declaration or "[" in declaration
        pointee = re.split(r"[*\[]", declaration)[0] if "*" in declaration else declaration
        bare = re.sub(r"\[[^\]]*\]", " ", declaration)
        name = re.search(r"([^\W\d]\w*)\s*\)?\s*$", bare)
        words = _QUALIFIERS.sub(" ", re.sub(r"[*&()]", " ", bare[: name.start()] if name else bare))
        ctype = " ".join(words.split())
        if name and not ctype:  # an unnamed parameter: what looked like its name is its type
            ctype, spelled = name.group(1), ""
        else:
            spelled = name.group(1) if name else ""
        params.append(Param(spelled, ctype, pointer, bool(re.search(r"\bconst\b", pointee))))
    return tuple(params)


def split_top(text: str, separators: str = ",") -> list[str]:
    """Split at separators outside of (), [], {} and <>."""
    parts, depth, last = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char in separators and depth <= 0:
            parts.append(text[last:i])
            last = i + 1
    parts.append(text[last:])
    return parts


def _boundary(lexed: Lexed, token: Token) -> int:
    """The end of whatever certainly stands before the declaration: the last ``;``, brace or preprocessor line."""
    low, high = 0, len(lexed.tokens)
    while low < high:
        middle = (low + high) // 2
        if lexed.tokens[middle].start < token.start:
            low = middle + 1
        else:
            high = middle
    for i in range(low - 1, -1, -1):
        if lexed.tokens[i].kind not in ("(", ")"):
            return lexed.tokens[i].end
    return 0


def _latin(code: bytes, keep_c_linkage: bytes | None = None) -> str:
    """Bytes as text with one character a byte, so that offsets stay byte offsets."""
    text = code.decode("latin-1")
    if keep_c_linkage is not None:
        for match in re.finditer(rb'extern\s+("C")', keep_c_linkage):
            text = text[: match.start(1)] + '"C"' + text[match.end(1) :]
    return text


def _utf8(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "replace")


def _original(lexed: Lexed, start: int, end: int) -> str:
    return lexed.code(start, end).decode("utf-8", "replace")


def _parameter_group(text: str) -> tuple[int, int] | None:
    """Offsets of the parentheses of the parameter list: the last group that no attribute owns."""
    depth, start, found = 0, 0, None
    for match in re.finditer(r"[()]", text):
        if match.group() == "(":
            if depth == 0:
                start = match.start()
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                owner = _LAST_WORD.search(text[:start])
                trailing = "->" in text[:start] and found is not None
                if not trailing and (owner is None or owner.group(1) not in _ATTRIBUTES):
                    found = (start, match.start())
    return found


def _before_angle(head: str) -> str:
    depth = 0
    for i in range(len(head) - 1, -1, -1):
        depth += (head[i] == ">") - (head[i] == "<")
        if depth == 0:
            return head[:i].rstrip()
    return head


def _before_paren(head: str) -> tuple[int, str]:
    """Where the ``NAME (...)`` at the end of ``head`` begins, and NAME."""
    depth = 0
    for i in range(len(head) - 1, -1, -1):
        depth += (head[i] == ")") - (head[i] == "(")
        if depth == 0:
            match = _LAST_WORD.search(head[:i])
            return (match.start(1), match.group(1)) if match else (i, "")
    return 0, ""


def _template_params(head: str) -> tuple[str, ...]:
    match = _TEMPLATE.search(head)
    if match is None:
        return ()
    depth, end = 1, match.end()
    while end < len(head) and depth:
        depth += (head[end] == "<") - (head[end] == ">")
        end += 1
    names = []
    for piece in split_top(head[match.end() : end - 1]):
        name = _LAST_WORD.search(piece)
        if "=" not in piece and name:
            names.append(_utf8(name.group(1)))
    return tuple(names)
