"""What a CUDA source declares: kernels, host functions, globals; each piece is cut out and parsed on its own.

Pieces are found by brackets, and a ``__global__`` always starts a new one, so a half-typed function loses nobody else.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field, replace

from dice_engine.source.host_lex import (
    Token,
    closing_angle,
    matching,
    split_commas,
    tokenize,
    untokenize,
)
from dice_engine.source.host_macros import preprocess
from dice_engine.source.host_signature import (
    TemplateParam,
    deduce,
    explicit_bindings,
    read_parameter,
    read_signature,
)
from dice_engine.source.host_types import parse_type, size_of
from dice_engine.source.plan import Param

__all__ = ["Declarations", "HostFunction", "KernelDecl", "TemplateParam", "declarations"]

_ALIAS = re.compile(r"(?:using\s+(\w+)\s*=\s*([\w\s:]+)|typedef\s+([\w\s:]+?)\s+(\w+))\s*;")
_REGISTRATIONS = (
    "PYBIND11_MODULE",
    "TORCH_LIBRARY",
    "TORCH_LIBRARY_IMPL",
    "TORCH_LIBRARY_FRAGMENT",
    "BOOST_PYTHON_MODULE",
)


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
    globals: list[tuple[int, str]] = field(default_factory=list)
    """Other declarations: line (from 1) and text of constants, enums, aliases."""
    calls: dict[str, set[str]] = field(default_factory=dict)
    """Names mentioned in each host function's body."""


def declarations(source: str) -> Declarations:
    """Read everything that ``source`` declares; never fails, what cannot be read is left out."""
    tokens = tokenize(preprocess(source))
    kernels = [index for index, token in enumerate(tokens) if token.text == "__global__"]
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
        end, body = _piece(tokens, index, kernels)
        _classify(found, instantiations, tokens, index, body, end)
        index = end
    _attach_instantiations(found, instantiations)
    _resolve_aliases(found)
    _attach_launches(found)
    return found


def _piece(tokens: list[Token], start: int, kernels: list[int]) -> tuple[int, int | None]:
    """End (exclusive) of the declaration that starts here, and the index of its body's ``{`` when it is a function.

    ``kernels``: where each ``__global__`` stands.
    """
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
            following = bisect_left(kernels, index)
            stop = kernels[following] if following < len(kernels) else len(tokens)
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
        signature = read_signature(head[1:])
        if signature:
            name = signature.name_tokens[0].text
            instantiations.setdefault(name, []).append(head)
        return
    if body is None:
        if "__global__" not in words and "__device__" not in words and "__constant__" not in words:
            found.globals.append((head[0].line, untokenize([head[0].led_by(""), *head[1:]])))
        return
    signature = read_signature(head)
    if signature is None:
        return
    name = signature.name_tokens[-1].text
    params = [read_parameter(part) for part in signature.params]
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


def _attach_instantiations(found: Declarations, instantiations: dict[str, list[list[Token]]]) -> None:
    for name, heads in instantiations.items():
        for signature in filter(None, (read_signature(head[1:]) for head in heads)):
            given = [(p.ctype, p.pointer) for p, _, _ in map(read_parameter, signature.params)]
            explicit = tuple(str(parse_type(_plain(part))) for part in split_commas(signature.explicit))
            for declared in [*found.functions.get(name, []), *filter(None, [found.kernels.get(name)])]:
                known = explicit_bindings(declared.template_params, explicit)
                arguments = deduce(declared.template_params, known, declared.params, given)
                if not arguments or arguments in declared.instantiations:
                    continue
                wider = (*declared.instantiations, arguments)
                if isinstance(declared, KernelDecl):
                    found.kernels[name] = replace(declared, instantiations=wider)
                else:
                    overloads = found.functions[name]
                    overloads[overloads.index(declared)] = replace(declared, instantiations=wider)


def _resolve_aliases(found: Declarations) -> None:
    """Put the builtin type in the place of the file's own name for it: ``using real = float`` makes ``real*`` a
    ``float*``. A name with two meanings stays as it is."""
    written: dict[str, set[str]] = {}
    for _, text in found.globals:
        if match := _ALIAS.fullmatch(text.strip()):
            name, target = (match[1], match[2]) if match[1] else (match[4], match[3])
            written.setdefault(name, set()).add(str(parse_type(target)))
    known: dict[str, str] = {}
    for name in written:
        meaning, seen = name, set[str]()
        while len(written.get(meaning, ())) == 1 and meaning not in seen:
            seen.add(meaning)
            (meaning,) = written[meaning]
        if size_of(meaning) is not None:
            known[name] = meaning
    if not known:
        return

    def plain(params: tuple[Param, ...], templates: tuple[TemplateParam, ...]) -> tuple[Param, ...]:
        own = {p.name for p in templates}
        return tuple(
            replace(p, ctype=known.get(p.ctype, p.ctype)) if p.ctype not in own else p for p in params
        )

    def bound(instantiations: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(known.get(one, one) for one in given) for given in instantiations)

    for kernel in found.kernels.values():
        found.kernels[kernel.name] = replace(
            kernel,
            params=plain(kernel.params, kernel.template_params),
            instantiations=bound(kernel.instantiations),
        )
    for name, overloads in found.functions.items():
        found.functions[name] = [
            replace(
                one,
                params=plain(one.params, one.template_params),
                instantiations=bound(one.instantiations),
            )
            for one in overloads
        ]


def _plain(tokens: list[Token]) -> str:
    return " ".join(t.text for t in tokens)


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
        found.functions[name] = [replace(f, launches=frozenset(reach[name])) for f in overloads]
