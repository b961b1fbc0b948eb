"""Split a CUDA source: the device translation unit, without host functions and without torch.

Header parsing is what makes torch sources slow to build (20-60 s); the device part alone compiles in milliseconds.
Removed text becomes spaces, so lines and columns in a compiler's messages are those of the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dice_engine.source.host_parse import KernelDecl, declarations
from dice_engine.verify.build.lexer import (
    Token,
    directive_name,
    live_tokens,
    match_angle,
    match_close,
    read_macros,
    tokenize,
)


@dataclass(frozen=True)
class DeviceSource:
    """The device translation unit of one source file."""

    text: str
    """As many lines as the source, ``\\n`` line ends."""
    kernels: dict[str, KernelDecl] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=dict)
    """Kernel name -> its named enclosing namespaces (``a::b``); absent at file scope."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Simple type aliases and enums: ``using real = float`` gives ``{"real": "float"}``, an enum its integer type."""
    dropped: tuple[str, ...] = ()
    """Headers that were left out (``torch/extension.h``): they also declared standard names that kernels may use."""

    def qualified(self, kernel: str) -> str:
        """The name to use at file scope: ``a::b::kernel``."""
        namespace = self.namespaces.get(kernel)
        return f"{namespace}::{kernel}" if namespace else kernel


_HEADERS_DROPPED = re.compile(
    r"(torch|ATen|c10|caffe2|pybind11|THC|TH|nccl|cuda/std/chrono)/|"
    r"(Python|cublas\w*|cublasLt|cudnn\w*|cufft\w*|cusparse\w*|cusolver\w*|curand|nccl|cudaProfiler|cuda_profiler_api"
    r"|nvToolsExt|mma_host)\.h$|"
    r"thrust/(host_vector|device_vector|device_ptr|sort|reduce|scan|transform\w*|copy|fill|sequence|execution_policy)\b|"
    r"(vector|string|iostream|fstream|sstream|ostream|istream|iomanip|memory|map|set|list|deque|queue|stack|string_view"
    r"|unordered_map|unordered_set|chrono|thread|mutex|atomic|future|condition_variable|random|stdexcept|exception|regex"
    r"|functional|filesystem|optional|variant|any|locale|unistd\.h|sys/.*|time\.h|ctime|signal\.h|dlfcn\.h|fcntl\.h)$"
)
"""Headers of the host side; no device code needs them."""
_DEVICE_MARKS = frozenset(
    [
        "__global__",
        "__device__",
        "__constant__",
        "__managed__",
        "C10_DEVICE",
        "C10_HOST_DEVICE",
        "GPU_LAMBDA",
        "C10_LAMBDA",
    ]
)
_DEVICE_WORD = re.compile(r"__(?:global|device|constant|managed)__|C10_(?:HOST_)?DEVICE")
_HOST_SCOPES = frozenset(["torch", "at", "c10", "pybind11", "py", "caffe2", "thrust"])
_HOST_STD = frozenset(
    [
        "vector",
        "string",
        "map",
        "unordered_map",
        "set",
        "unordered_set",
        "unique_ptr",
        "shared_ptr",
        "mutex",
        "thread",
        "ostream",
        "istream",
        "ofstream",
        "ifstream",
        "cout",
        "cerr",
        "function",
        "optional",
        "runtime_error",
        "chrono",
        "deque",
        "list",
        "queue",
        "stringstream",
        "ostringstream",
    ]
)
_HOST_NAME = re.compile(
    r"cuda(Stream|Event|Error|DeviceProp|Graph|MemPool|Func)\w*|cublas\w*|cudnn\w*|cufft\w*|cusparse\w*|ncclComm\w*|FILE"
)
_ATTRIBUTES = frozenset(
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
_TYPE_WORDS = frozenset(["struct", "class", "union", "enum"])


@dataclass
class _Item:
    """One top-level declaration. ``role``: device, host, neutral (kept unless it needs host things), keep."""

    tokens: Sequence[Token]
    namespace: tuple[str, ...]
    role: str = "neutral"
    kernel: str | None = None


def split(source: str) -> DeviceSource:
    """The device translation unit of ``source``; never fails: what cannot be understood is kept for the compiler."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    tokens = live_tokens(tokenize(text))
    macros = read_macros(tokens)
    marks = _DEVICE_MARKS | {
        n for n, (call, body) in macros.items() if not call and _DEVICE_WORD.search(body)
    }
    items = list(_items(tokens, 0, len(tokens), (), macros))
    for item in items:
        _classify(item, marks, macros)
    _drop_host_needs(items)

    pieces = list(text)
    for item in items:
        if item.role == "host":
            _blank(pieces, item.tokens[0].start, item.tokens[-1].end, item.tokens)
    dropped = []
    for token in tokens:
        if token.kind == "pp" and directive_name(token.text) == "include":
            header = re.search(r'[<"]([^>"]+)[>"]', token.text)
            if header and _HEADERS_DROPPED.match(header.group(1)):
                _blank(pieces, token.start, token.end, ())
                dropped.append(header.group(1))
    namespaces = {i.kernel: "::".join(filter(None, i.namespace)) for i in items if i.kernel}
    return DeviceSource(
        "".join(pieces),
        declarations(source).kernels,
        {name: path for name, path in namespaces.items() if path},
        _aliases(items, macros),
        tuple(dropped),
    )


def declared_bodies(text: str) -> dict[str, set[str]]:
    """Name of each function, type or variable that ``text`` declares -> the words in its declaration."""
    tokens = live_tokens(tokenize(text))
    bodies: dict[str, set[str]] = {}
    for item in _items(tokens, 0, len(tokens), (), read_macros(tokens)):
        head, is_function = _head(item.tokens)
        name = _kernel_name(head) if is_function else None
        words = {t.text for t in item.tokens if t.kind == "id"}
        for declared in (
            [name] if name else _declared(head if is_function else [*head, *item.tokens[len(head) :][:1]])
        ):
            bodies[declared] = bodies.get(declared, set()) | words
    return bodies


def _aliases(items: list[_Item], macros: dict[str, tuple[bool, str]]) -> dict[str, str]:
    found = {
        n: body.strip() for n, (call, body) in macros.items() if not call and re.fullmatch(r"[\w:\s]+", body)
    }
    for item in items:
        text = " ".join(t.text for t in item.tokens)
        for pattern, name, target in (
            (r"using (\w+) = ([\w\s:*]+?) ;", 1, 2),
            (r"typedef ([\w\s:*]+?) (\w+) ;", 2, 1),
            (r"enum (?:class |struct )?(\w+)(?: : ([\w\s:]+?))? \{.*", 1, 2),
        ):
            match = re.fullmatch(pattern, text, re.DOTALL)
            if match:
                found[match.group(name)] = (match.group(target) or "int").replace(" :: ", "::")
    return found


def _blank(pieces: list[str], start: int, end: int, tokens: Sequence[Token]) -> None:
    """Spaces for text, newlines kept; directives inside stay, a removed function may hold half of an ``#if``."""
    kept = [range(t.start, t.end) for t in tokens if t.kind == "pp"]
    for position in range(start, end):
        if pieces[position] != "\n" and not any(position in span for span in kept):
            pieces[position] = " "


def _items(
    tokens: Sequence[Token],
    index: int,
    end: int,
    namespace: tuple[str, ...],
    macros: dict[str, tuple[bool, str]],
) -> Iterator[_Item]:
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
            yield from _items(tokens, brace + 1, close, namespace + names, macros)
            index = close + 1
            continue
        stop = _macro_call_end(tokens, index, end, macros) or _item_end(tokens, index, end)
        yield _Item(tokens[index:stop], namespace)
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


def _macro_call_end(
    tokens: Sequence[Token], index: int, end: int, macros: dict[str, tuple[bool, str]]
) -> int | None:
    """End of a function-like macro's call that stands as a declaration: ``MAKE(x)``, ``PYBIND11_MODULE(..) {..}``."""
    name = tokens[index].text
    takes_arguments, body = macros.get(name, (False, ""))
    known = takes_arguments and re.search(r"[;{}]", body)
    registers = name.startswith(("PYBIND11_", "TORCH_LIBRARY", "BOOST_PYTHON"))
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
        if text == ";":
            return position + 1
        if text == "}":  # a stray brace, or the end of a scope that we did not see open
            return position + 1
        if text == "template" and position + 1 < end and tokens[position + 1].text == "<":
            position = match_angle(tokens, position + 1)
        elif text == "=" and tokens[position - 1].text != "operator":
            assigned = True
        elif text in ("(", "["):
            close = match_close(tokens, position)
            before = tokens[position - 1].text if position > index else ""
            called = called or (text == "(" and before not in _ATTRIBUTES)
            position = close
        elif text == "{":
            close = match_close(tokens, position)
            inner = next(
                (p for p in range(position, min(close, end)) if tokens[p].text == "__global__"), None
            )
            if inner is not None and (called or close >= end) and not assigned:
                return _declaration_start(
                    tokens, inner, position
                )  # text being typed: a body that never closes
            if called and not assigned:
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


def _classify(item: _Item, marks: frozenset[str], macros: dict[str, tuple[bool, str]]) -> None:
    tokens = item.tokens
    words = {t.text for t in tokens if t.kind == "id"}
    first = tokens[0].text
    if macros.get(first, (False, ""))[0] and len(tokens) > 1 and tokens[1].text == "(":
        item.role = _macro_role(macros[first][1], macros)
    elif first.startswith(("PYBIND11_", "TORCH_LIBRARY", "BOOST_PYTHON")):
        item.role = "host"
    elif first == "using" and words & {"namespace"}:
        item.role = "host" if words & _HOST_SCOPES else "keep"
    else:
        head, is_function = _head(tokens)
        head_words = {t.text for t in head}
        if head_words & marks or (words & {"__device__", "__constant__", "__shared__"} and not is_function):
            item.role = "device"
            item.kernel = _kernel_name(head) if "__global__" in head_words or is_function else None
        elif (
            not head_words & {"constexpr", "consteval"}
            if is_function
            else _is_mutable_variable(head, head_words)
        ):
            item.role = "host"


def _macro_role(body: str, macros: dict[str, tuple[bool, str]], depth: int = 0) -> str:
    if _DEVICE_WORD.search(body):
        return "device"
    for name in re.findall(r"\w+", body) if depth < 8 else ():
        if name in macros and _macro_role(macros[name][1], macros, depth + 1) == "device":
            return "device"
    return (
        "neutral" if re.search(r"\b(struct|constexpr|using|typedef|enum|static_assert)\b", body) else "host"
    )


def _head(tokens: Sequence[Token]) -> tuple[Sequence[Token], bool]:
    """The tokens before a body or an initialiser, template header left out, and whether they declare a function."""
    position = 0
    while position + 1 < len(tokens) and tokens[position].text == "template":
        position = match_angle(tokens, position + 1) + 1 if tokens[position + 1].text == "<" else position + 1
    start, called = position, False
    words = {"using", "typedef", "static_assert", "struct", "class", "union", "enum", "friend"}
    type_like = position < len(tokens) and tokens[position].text in words
    while position < len(tokens):
        text = tokens[position].text
        if text in ("=", ";", "{") and not (text == "=" and tokens[position - 1].text == "operator"):
            break
        if text in ("(", "["):
            before = tokens[position - 1].text if position > start else ""
            called = called or (text == "(" and before not in _ATTRIBUTES and position > start)
            position = match_close(tokens, position)
        position += 1
    if type_like and tokens[start].text in ("using", "typedef", "static_assert"):
        called = False
    return tokens[start:position], called


def _kernel_name(head: Sequence[Token]) -> str | None:
    for position, token in enumerate(head):
        before = head[position - 1] if position else token
        if token.text == "(" and before.kind == "id" and before.text not in _ATTRIBUTES:
            return before.text
    return None


def _is_mutable_variable(head: Sequence[Token], words: set[str]) -> bool:
    if words & (
        _TYPE_WORDS | {"using", "typedef", "static_assert", "const", "constexpr", "constinit", "namespace"}
    ):
        return False
    return len([t for t in head if t.kind == "id"]) >= 2


def _drop_host_needs(items: list[_Item]) -> None:
    """Neutral declarations that name host things go, unless device code (directly or not) needs them."""
    needed: set[str] = set()
    for item in items:
        if item.role in ("device", "keep"):
            needed |= {t.text for t in item.tokens if t.kind == "id"}
    neutral = [item for item in items if item.role == "neutral"]
    changed = True
    while changed:
        changed = False
        for item in neutral:
            words = {t.text for t in item.tokens if t.kind == "id"}
            if item.role == "neutral" and words & needed & set(_declared(item.tokens)):
                item.role, changed = "keep", True
                needed |= words
    for item in neutral:
        if item.role == "neutral" and _needs_host(item.tokens):
            item.role = "host"


def _declared(tokens: Sequence[Token]) -> Iterator[str]:
    """Names that the declaration may introduce: a small superset is enough."""
    for position, token in enumerate(tokens[:64]):
        if token.kind == "id":
            following = tokens[position + 1].text if position + 1 < len(tokens) else ""
            if following in ("(", "{", "=", ";", "[", ":", "<", ","):
                yield token.text


def _needs_host(tokens: Sequence[Token]) -> bool:
    for position, token in enumerate(tokens):
        if token.kind != "id":
            continue
        following = tokens[position + 1].text if position + 1 < len(tokens) else ""
        if token.text in _HOST_SCOPES and (
            following == "::" or tokens[position - 1].text in ("=", "namespace")
        ):
            return True
        if token.text == "std" and position + 2 < len(tokens) and tokens[position + 2].text in _HOST_STD:
            return True
        if _HOST_NAME.fullmatch(token.text):
            return True
    return False
