"""Split a CUDA source: the device translation unit, without host functions and without torch.

Header parsing is what makes torch sources slow to build (20-60 s); the device part alone compiles in milliseconds.
Removed text becomes spaces, so lines and columns in a compiler's messages are those of the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dice_engine.source.host_parse import KernelDecl, declarations
from dice_engine.verify.build.lexer import Token, directive_name, live_tokens, read_macros, tokenize
from dice_engine.verify.build.toplevel import (
    REGISTRATIONS,
    Item,
    Macros,
    declared_names,
    function_name,
    head_of,
    items_of,
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
    r"|nvToolsExt|mma_host|helper_(?:cuda|functions|string|timer|image|gl|nppi?))\.h$|"
    r"thrust/(host_vector|device_vector|device_ptr|sort|reduce|scan|transform\w*|copy|fill|sequence|execution_policy)\b|"
    r"(vector|string|iostream|fstream|sstream|ostream|istream|iomanip|memory|map|set|list|deque|queue|stack|string_view"
    r"|unordered_map|unordered_set|chrono|thread|mutex|atomic|future|condition_variable|random|stdexcept|exception|regex"
    r"|functional|filesystem|optional|variant|any|locale|unistd\.h|sys/.*|time\.h|ctime|signal\.h|dlfcn\.h|fcntl\.h)$"
)
"""Headers of the host side; no device code needs them."""
_BYTE_ORDER_MARK = " " * len("\ufeff".encode())
"""What stands for one: compilers that are given a text, not a file, know no such thing."""
_DEVICE_MARKS = frozenset(
    "__global__ __device__ __constant__ __managed__ C10_DEVICE C10_HOST_DEVICE GPU_LAMBDA C10_LAMBDA".split()  # noqa: SIM905
)
_ANNOTATED_LAMBDA = re.compile(r"(?<=\])(?:\s*\b__(?:host|device)__)+(?=\s*[({])")
"""``[=] __device__ (int i)``: an option of nvcc that NVRTC has not; in device code the words say nothing new."""
_DEVICE_WORD = re.compile(r"__(?:global|device|constant|managed)__|C10_(?:HOST_)?DEVICE")
_HOST_SCOPES = frozenset(["torch", "at", "c10", "pybind11", "py", "caffe2", "thrust"])
_HOST_STD = re.compile(
    r"vector|string|map|unordered_map|set|unordered_set|unique_ptr|shared_ptr|mutex|thread|[io]?f?stream|cout|cerr"
    r"|function|optional|runtime_error|chrono|deque|list|queue|[io]?stringstream"
)
_HOST_NAME = re.compile(
    r"cuda(Stream|Event|Error|DeviceProp|Graph|MemPool|Func)\w*|cublas\w*|cudnn\w*|cufft\w*|cusparse\w*|ncclComm\w*|FILE"
)
_TYPE_WORDS = frozenset(["struct", "class", "union", "enum"])


def split(source: str) -> DeviceSource:
    """The device translation unit of ``source``; never fails: what cannot be understood is kept for the compiler."""
    text = source.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", _BYTE_ORDER_MARK)
    tokens = live_tokens(tokenize(text))
    macros = read_macros(tokens)
    marks = _DEVICE_MARKS | {
        n for n, (call, body) in macros.items() if not call and _DEVICE_WORD.search(body)
    }
    items = list(items_of(tokens, 0, len(tokens), (), macros))
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
        _ANNOTATED_LAMBDA.sub(lambda match: re.sub(r"\S", " ", match.group()), "".join(pieces)),
        declarations(source).kernels,
        {name: path for name, path in namespaces.items() if path},
        _aliases(items, macros),
        tuple(dropped),
    )


def _aliases(items: list[Item], macros: Macros) -> dict[str, str]:
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


def _classify(item: Item, marks: frozenset[str], macros: Macros) -> None:
    tokens = item.tokens
    words = {t.text for t in tokens if t.kind == "id"}
    first = tokens[0].text
    if macros.get(first, (False, ""))[0] and len(tokens) > 1 and tokens[1].text == "(":
        item.role = _macro_role(macros[first][1], macros)
    elif first.startswith(REGISTRATIONS):
        item.role = "host"
    elif first == "using" and words & {"namespace"}:
        item.role = "host" if words & _HOST_SCOPES else "keep"
    else:
        head, is_function = head_of(tokens)
        head_words = {t.text for t in head}
        if head_words & marks or (words & {"__device__", "__constant__", "__shared__"} and not is_function):
            item.role = "device"
            item.kernel = function_name(head) if "__global__" in head_words or is_function else None
        elif is_function:
            item.role = "neutral" if head_words & {"constexpr", "consteval"} else "host"
        elif _is_mutable_variable(head, head_words):
            item.role = "host"


def _macro_role(body: str, macros: Macros, depth: int = 0) -> str:
    if _DEVICE_WORD.search(body):
        return "device"
    for name in re.findall(r"\w+", body) if depth < 8 else ():
        if name in macros and _macro_role(macros[name][1], macros, depth + 1) == "device":
            return "device"
    return (
        "neutral" if re.search(r"\b(struct|constexpr|using|typedef|enum|static_assert)\b", body) else "host"
    )


def _is_mutable_variable(head: Sequence[Token], words: set[str]) -> bool:
    if words & (
        _TYPE_WORDS | {"using", "typedef", "static_assert", "const", "constexpr", "constinit", "namespace"}
    ):
        return False
    return len([t for t in head if t.kind == "id"]) >= 2


def _drop_host_needs(items: list[Item]) -> None:
    """Neutral declarations that need host things go, unless device code (directly or not) needs them."""
    neutral = [(item, declared_names(item.tokens), _words(item)) for item in items if item.role == "neutral"]
    needed: set[str] = set().union(*(_words(item) for item in items if item.role in ("device", "keep")))
    changed = True
    while changed:
        changed = False
        for item, names, words in neutral:
            if item.role == "neutral" and names & needed:
                item.role, changed = "keep", True
                needed |= words
    host = set().union(*(declared_names(item.tokens) for item in items if item.role == "host"))
    changed = True
    while changed:
        changed = False
        for item, names, words in neutral:
            if item.role == "neutral" and (words & host or _needs_host(item.tokens)):
                item.role, changed = "host", True
                host |= names


def _words(item: Item) -> set[str]:
    return {t.text for t in item.tokens if t.kind == "id"}


def _needs_host(tokens: Sequence[Token]) -> bool:
    for position, token in enumerate(tokens):
        if token.kind != "id":
            continue
        following = tokens[position + 1].text if position + 1 < len(tokens) else ""
        if token.text in _HOST_SCOPES and (
            following == "::" or tokens[position - 1].text in ("=", "namespace")
        ):
            return True
        if (
            token.text == "std"
            and position + 2 < len(tokens)
            and _HOST_STD.fullmatch(tokens[position + 2].text)
        ):
            return True
        if _HOST_NAME.fullmatch(token.text):
            return True
    return False
