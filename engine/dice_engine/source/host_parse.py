"""What a CUDA source declares: kernels, host functions, globals; each piece is cut out and parsed on its own.

Pieces are found by brackets, and a ``__global__`` always starts a new one, so a half-typed function loses nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import tree_sitter
import tree_sitter_cuda

from dice_engine.source.host_lex import (
    Token,
    closing_angle,
    matching,
    plain_text,
    split_commas,
    tokenize,
    untokenize,
)
from dice_engine.source.host_macros import preprocess
from dice_engine.source.host_types import parse_type
from dice_engine.source.plan import Param

_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())
_ATTRIBUTES = (
    "__launch_bounds__",
    "__attribute__",
    "__cluster_dims__",
    "__align__",
    "__maxnreg__",
    "alignas",
    "noexcept",
)
_REGISTRATIONS = (
    "PYBIND11_MODULE",
    "TORCH_LIBRARY",
    "TORCH_LIBRARY_IMPL",
    "TORCH_LIBRARY_FRAGMENT",
    "BOOST_PYTHON_MODULE",
)
_NOT_NAMES = {"if", "for", "while", "switch", "return", "sizeof", "decltype", "operator"}


@dataclass(frozen=True)
class TemplateParam:
    name: str
    kind: Literal["type", "value"]
    default: str | None = None


@dataclass(frozen=True)
class KernelDecl:
    """A ``__global__`` function: name and signature only (its body is the device compiler's)."""

    name: str
    params: tuple[Param, ...]
    template_params: tuple[TemplateParam, ...] = ()
    line: int = 0
    instantiations: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class HostFunction:
    """A function of the host side, callable through ``HostProgram.call``."""

    name: str
    params: tuple[Param, ...]
    return_type: str
    template_params: tuple[TemplateParam, ...] = ()
    instantiations: tuple[tuple[str, ...], ...] = ()
    """Template arguments of the explicit instantiations in the file."""
    launches: frozenset[str] = frozenset()
    """Kernels whose launch this function may reach, itself or through functions it calls."""
    line: int = 0
    defaults: tuple[str | None, ...] = field(default=(), repr=False)
    references: tuple[bool, ...] = field(default=(), repr=False)
    body: str = field(default="", repr=False)
    """The text between (and with) the braces, led by as many newlines as the file has above it."""


@dataclass
class Declarations:
    kernels: dict[str, KernelDecl] = field(default_factory=dict)
    functions: dict[str, list[HostFunction]] = field(default_factory=dict)
    globals: list[str] = field(default_factory=list)
    """Other declarations as padded text: constants, enums, aliases."""
    calls: dict[str, set[str]] = field(default_factory=dict)
    """Names mentioned in each host function's body."""


def parse_tree(text: str) -> tree_sitter.Node:
    return tree_sitter.Parser(_LANGUAGE).parse(text.encode()).root_node


def declarations(source: str) -> Declarations:
    """Read everything that ``source`` declares; never fails, what cannot be read is left out."""
    tokens = tokenize(preprocess(source))
    found = Declarations()
    instantiations: dict[str, list[list[Token]]] = {}
    index = 0
    while index < len(tokens) - 1:
        text = tokens[index].text
        if text == "namespace" or (text == "extern" and tokens[index + 1].kind == "string"):
            opening = index + 1
            while opening < len(tokens) - 1 and (
                tokens[opening].kind in ("name", "string") or tokens[opening].text == "::"
            ):
                if tokens[opening].text == "__global__":
                    break
                opening += 1
            if tokens[opening].text == "{":
                index = opening + 1
                continue
            if text == "extern":
                index += 2
                continue
        if text in (";", "}", ")", "]", ""):
            index += 1
            continue
        end, body = _piece(tokens, index)
        _classify(found, instantiations, tokens, index, body, end)
        index = end
    _attach_instantiations(found, instantiations)
    _attach_launches(found)
    return found


def _piece(tokens: list[Token], start: int) -> tuple[int, int | None]:
    """End (exclusive) of the declaration that starts here, and the index of its body's ``{`` when it is a function."""
    index = start
    started = False
    parenthesised = assigned = False
    while index < len(tokens) - 1:
        text = tokens[index].text
        if text == "__global__":
            if started:
                return _before_kernel(tokens, index, start + 1), None
            started = True
        if text == ";":
            return index + 1, None
        if text == "}":
            return index + 1, None
        if text == "=":
            assigned = True
        if text == "<" and tokens[index - 1].text == "template" and index > start:
            index = closing_angle(tokens, index) or index
        elif text in ("(", "[", "{"):
            stop = next((i for i in range(index, len(tokens)) if tokens[i].text == "__global__"), len(tokens))
            close = matching(tokens, index, stop)
            if close is None:
                return _before_kernel(tokens, stop, start + 1), None
            if text == "{":
                if parenthesised and not assigned:
                    return close + 1, index
            elif text == "(":
                parenthesised = True
            index = close
        index += 1
    return len(tokens) - 1, None


def _before_kernel(tokens: list[Token], kernel: int, least: int) -> int:
    """Where the declaration around a ``__global__`` starts: its ``template <...>`` and specifiers belong to it."""
    index = min(kernel, len(tokens) - 1)
    while index - 1 >= least and tokens[index - 1].text in (
        "static",
        "inline",
        "extern",
        '"C"',
        "__forceinline__",
    ):
        index -= 1
    if index - 1 >= least and tokens[index - 1].text == ">":
        for back in range(index - 2, max(least, index - 200) - 1, -1):
            if tokens[back].text == "template" and closing_angle(tokens, back + 1) == index - 1:
                return back
            if tokens[back].text in (";", "{", "}"):
                break
    return max(index, least)


def _classify(
    found: Declarations,
    instantiations: dict[str, list[list[Token]]],
    tokens: list[Token],
    start: int,
    body: int | None,
    end: int,
) -> None:
    head = tokens[start : body if body is not None else end]
    words = {t.text for t in head}
    if head[0].text in _REGISTRATIONS:
        return
    if head[0].text == "template" and len(head) > 1 and head[1].text != "<":
        signature = _signature(head[1:])
        if signature:
            name = signature.name_tokens[0].text
            instantiations.setdefault(name, []).append(head)
        return
    if body is None:
        if "__global__" not in words and "__device__" not in words and "__constant__" not in words:
            found.globals.append("\n" * (head[0].line - 1) + untokenize([head[0].led_by(""), *head[1:]]))
        return
    signature = _signature(head)
    if signature is None:
        return
    name = signature.name_tokens[-1].text
    params = [_parameter(part) for part in signature.params]
    line = signature.name_tokens[-1].line
    if "__global__" in words:
        found.kernels[name] = KernelDecl(
            name, tuple(p for p, _, _ in params), signature.template_params, line
        )
        return
    if "__device__" in words and "__host__" not in words:
        return
    inside = tokens[body:end]
    text = "\n" * (inside[0].line - 1) + untokenize([inside[0].led_by(""), *inside[1:]])
    function = HostFunction(
        name,
        tuple(p for p, _, _ in params),
        signature.return_type,
        signature.template_params,
        line=line,
        defaults=tuple(d for _, d, _ in params),
        references=tuple(r for _, _, r in params),
        body=text,
    )
    found.functions.setdefault(name, []).append(function)
    found.calls.setdefault(name, set()).update(t.text for t in inside if t.kind == "name")


@dataclass(frozen=True)
class _Signature:
    name_tokens: list[Token]
    return_type: str
    params: list[list[Token]]
    template_params: tuple[TemplateParam, ...]
    explicit: list[Token]


def _signature(head: list[Token]) -> _Signature | None:
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
    return _Signature([name], _spaced(returned), params, template_params, explicit)


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


def _parameter(tokens: list[Token]) -> tuple[Param, str | None, bool]:
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


def _attach_instantiations(found: Declarations, instantiations: dict[str, list[list[Token]]]) -> None:
    for name, heads in instantiations.items():
        for head in heads:
            signature = _signature(head[1:])
            if signature is None:
                continue
            params = tuple(_parameter(part)[0] for part in signature.params)
            explicit = tuple(str(parse_type(_plain(part))) for part in split_commas(signature.explicit))
            kernel = found.kernels.get(name)
            if kernel is not None:
                arguments = deduce(
                    kernel.template_params, explicit, kernel.params, [(p.ctype, p.pointer) for p in params]
                )
                if arguments and arguments not in kernel.instantiations:
                    changed = {**kernel.__dict__, "instantiations": (*kernel.instantiations, arguments)}
                    found.kernels[name] = KernelDecl(**changed)
            for position, function in enumerate(found.functions.get(name, [])):
                arguments = deduce(
                    function.template_params,
                    explicit,
                    function.params,
                    [(p.ctype, p.pointer) for p in params],
                )
                if arguments and arguments not in function.instantiations:
                    changed = {**function.__dict__, "instantiations": (*function.instantiations, arguments)}
                    found.functions[name][position] = HostFunction(**changed)


def _plain(tokens: list[Token]) -> str:
    return " ".join(t.text for t in tokens)


def deduce(
    template_params: tuple[TemplateParam, ...],
    explicit: tuple[str, ...],
    params: tuple[Param, ...],
    given: list[tuple[str, bool]],
) -> tuple[str, ...] | None:
    """Template arguments from explicit ones, then from argument types ``(ctype, is pointer)``, then defaults.

    None when one stays unknown.
    """
    known = {p.name: a for p, a in zip(template_params, explicit, strict=False)}
    for param, (ctype, pointer) in zip(params, given, strict=False):
        wanted = {p.name for p in template_params if p.kind == "type"}
        if param.ctype in wanted and param.ctype not in known and ctype and pointer == param.pointer:
            known[param.ctype] = ctype
    for param in template_params:
        if param.name not in known and param.default is not None:
            known[param.name] = known.get(param.default, param.default)
    values = tuple(known[p.name] for p in template_params if p.name in known)
    return values if len(values) == len(template_params) else None


def _attach_launches(found: Declarations) -> None:
    reach = {name: set(mentioned) & set(found.kernels) for name, mentioned in found.calls.items()}
    changed = True
    while changed:
        changed = False
        for name, mentioned in found.calls.items():
            wider = set().union(reach[name], *(reach[other] for other in mentioned if other in reach))
            if wider != reach[name]:
                reach[name], changed = wider, True
    for name, overloads in found.functions.items():
        found.functions[name] = [
            HostFunction(**{**f.__dict__, "launches": frozenset(reach[name])}) for f in overloads
        ]
