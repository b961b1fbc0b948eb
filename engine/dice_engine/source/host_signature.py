"""Signatures of kernels and host functions, and the deduction of their template arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dice_engine.source.host_lex import (
    Token,
    closing_angle,
    matching,
    plain_text,
    split_commas,
)
from dice_engine.source.host_types import parse_type
from dice_engine.source.plan import Param

_ATTRIBUTES = (
    "__launch_bounds__",
    "__attribute__",
    "__cluster_dims__",
    "__align__",
    "__maxnreg__",
    "alignas",
    "noexcept",
)
_NOT_NAMES = {"if", "for", "while", "switch", "return", "sizeof", "decltype", "operator"}


@dataclass(frozen=True)
class TemplateParam:
    name: str
    kind: Literal["type", "value"]
    default: str | None = None


@dataclass(frozen=True)
class Signature:
    name_tokens: list[Token]
    return_type: str
    params: list[list[Token]]
    template_params: tuple[TemplateParam, ...]
    explicit: list[Token]


def read_signature(head: list[Token]) -> Signature | None:
    """Read ``template <...> specifiers type name<...>(params) ...``; None when there is no parameter list."""
    template_params: tuple[TemplateParam, ...] = ()
    index = 0
    while index + 1 < len(head) and head[index].text == "template" and head[index + 1].text == "<":
        close = closing_angle(head, index + 1)
        if close is None:
            return None
        template_params = tuple(_template_parameter(part) for part in split_commas(head[index + 2 : close]))
        index = close + 1
    first = index
    candidate: tuple[int, int] | None = None
    while index < len(head):
        if head[index].text == "(":
            close = matching(head, index)
            if close is None:
                return None
            before = head[index - 1].text if index else ""
            attribute = before in _ATTRIBUTES or "LAUNCH_BOUNDS" in before or before == "("
            if not attribute and (candidate is None or head[candidate[0] - 1].text.isupper()):
                candidate = (index, close)
            index = close
        index += 1
    if candidate is None or candidate[0] <= first:
        return None
    opening, close = candidate
    name_at = opening - 1
    explicit: list[Token] = []
    if head[name_at].text in (">", ">>"):
        for back in range(name_at, first - 1, -1):
            if head[back].text == "<" and closing_angle(head, back) == name_at:
                explicit, name_at = head[back + 1 : name_at], back - 1
                break
    name = head[name_at]
    if name_at < first or name.kind != "name" or name.text in _NOT_NAMES:
        return None
    if name_at > first and head[name_at - 1].text == "::":
        return None
    returned = [t for t in head[first:name_at] if t.text not in ("__global__", "virtual", "explicit")]
    trailing = next((i for i in range(close, len(head)) if head[i].text == "->"), None)
    if trailing is not None:
        returned = head[trailing + 1 :]
    params = [p for p in split_commas(head[opening + 1 : close]) if plain_text(p) != "void"]
    return Signature([name], _spaced(returned), params, template_params, explicit)


def _spaced(tokens: list[Token]) -> str:
    kept: list[str] = []
    skip = 0
    for i, token in enumerate(tokens):
        if skip:
            skip -= 1
        elif token.text in _ATTRIBUTES and i + 1 < len(tokens) and tokens[i + 1].text == "(":
            skip = (matching(tokens, i + 1) or i + 1) - i
        else:
            kept.append(token.text)
    return str(parse_type(" ".join(kept)))


def _template_parameter(tokens: list[Token]) -> TemplateParam:
    equals = next((i for i, t in enumerate(tokens) if t.text == "="), None)
    default = plain_text(tokens[equals + 1 :]) if equals is not None else None
    declared = tokens[:equals]
    names = [t.text for t in declared if t.kind == "name"]
    kind: Literal["type", "value"] = (
        "type" if names[:1] and names[0] in ("typename", "class", "template") else "value"
    )
    name = names[-1] if len(names) > 1 else ""
    return TemplateParam(name, kind, default)


def read_parameter(tokens: list[Token]) -> tuple[Param, str | None, bool]:
    """One parameter: the Param, its default's text, and whether it is a reference that the caller sees change."""
    equals = next((i for i, t in enumerate(tokens) if t.text == "="), None)
    default = plain_text(tokens[equals + 1 :]) if equals is not None else None
    declared = list(tokens[:equals])
    stars = 0
    while declared and declared[-1].text == "]":
        opening = max((i for i, t in enumerate(declared) if t.text == "["), default=0)
        declared, stars = declared[:opening], stars + 1
    name = ""
    builtin = {"int", "float", "double", "unsigned", "long", "short", "char", "bool", "const", "signed"}
    words = [t for t in declared if t.kind == "name" and not t.text.startswith("__restrict")]
    if len(words) > 1 or any(t.text in ("*", "&") for t in declared):
        last = declared[-1]
        if last.kind == "name" and last.text not in builtin and not last.text.startswith("__restrict"):
            after_scope = len(declared) > 1 and declared[-2].text == "::"
            if not after_scope:
                name, declared = last.text, declared[:-1]
    ctype = parse_type(" ".join(t.text for t in declared))
    pointer = ctype.stars + stars > 0
    element = ctype.base + "*" * max(0, ctype.stars + stars - 1)
    param = Param(name, element, pointer, ctype.const)
    return param, default, ctype.reference and not ctype.const


def deduce(
    template_params: tuple[TemplateParam, ...],
    known: Mapping[str, str],
    params: tuple[Param, ...],
    given: list[tuple[str, bool]],
) -> tuple[str, ...] | None:
    """Template arguments from known ones, then from argument types ``(ctype, is pointer)``, then defaults.

    None when one stays unknown.
    """
    known = dict(known)
    for param, (ctype, pointer) in zip(params, given, strict=False):
        wanted = {p.name for p in template_params if p.kind == "type"}
        if param.ctype in wanted and param.ctype not in known and ctype and pointer == param.pointer:
            known[param.ctype] = ctype
    for param in template_params:
        if param.name not in known and param.default is not None:
            known[param.name] = known.get(param.default, param.default)
    values = tuple(known[p.name] for p in template_params if p.name in known)
    return values if len(values) == len(template_params) else None


def explicit_bindings(
    template_params: tuple[TemplateParam, ...], explicit: tuple[str, ...]
) -> dict[str, str]:
    return {p.name: a for p, a in zip(template_params, explicit, strict=False)}
