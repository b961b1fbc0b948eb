"""The host side of a CUDA source as C++ for g++: kernels become launch stubs, ``<<<>>>`` becomes a call.

Edits stay inside their lines, so that a compiler's messages speak of the user's lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dice_engine.verify.build.interface import NeedsToolkit
from dice_engine.verify.build.lexer import (
    Token,
    directive_name,
    live_tokens,
    match_angle,
    match_close,
    read_macros,
    tokenize,
)
from dice_engine.verify.build.toplevel import REGISTRATIONS, function_name, head_of, items_of

_UNSUPPORTED = {
    "cudaLaunchKernel": "launches through cudaLaunchKernel",
    "cudaLaunchKernelEx": "launches through cudaLaunchKernelEx",
    "cudaLaunchKernelExC": "launches through cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel": "launches a cooperative kernel",
    "cudaFuncGetAttributes": "asks CUDA for a kernel's attributes",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": "asks CUDA for a kernel's occupancy",
    "cudaOccupancyMaxPotentialBlockSize": "asks CUDA for a kernel's occupancy",
    "cudaOccupancyMaxPotentialBlockSizeVariableSMem": "asks CUDA for a kernel's occupancy",
    "TORCH_LIBRARY": "registers torch operators",
    "TORCH_LIBRARY_IMPL": "registers torch operators",
    "TORCH_LIBRARY_FRAGMENT": "registers torch operators",
    "thrust": "uses Thrust from host code",
    "__managed__": "uses managed variables",
}
"""Host constructs that only nvcc's own launch machinery serves."""
_HEADERS_DROPPED = re.compile(
    r"torch/|pybind11/|cooperative_groups|mma\.h$|cub/|cuda/|cute/|cutlass/|cuda_pipeline|cuda_awbarrier|sm_\d\d_"
    r"|device_functions\.h$|device_atomic_functions\.h$|math_functions\.h$|crt/"
)
"""In the precompiled header already, or of use to device code only."""
_CPU_WORDS = {"is_cuda": "is_cpu", "kCUDA": "kCPU"}


@dataclass(frozen=True)
class HostUnit:
    """The C++ text, with as many lines as the source, and the kernels that have stubs."""

    text: str
    kernels: dict[str, tuple[str, ...]]
    """Kernel -> the names of its template parameters."""


class _Edits:
    def __init__(self, text: str) -> None:
        self._text = text
        self._edits: list[tuple[int, int, str]] = []

    def replace(self, start: int, end: int, new: str) -> None:
        """Put ``new`` for the range; its newlines are kept so that later lines do not move."""
        self._edits.append((start, end, new + "\n" * self._text.count("\n", start, end)))

    def apply(self) -> str:
        pieces, position = [], 0
        for start, end, new in sorted(self._edits, key=lambda edit: edit[:2]):
            if start < position:  # inside a range that is gone
                continue
            pieces += [self._text[position:start], new]
            position = max(position, end)
        return "".join([*pieces, self._text[position:]])


def host_unit(source: str, cpu: bool) -> HostUnit:
    """Rewrite ``source``; ``cpu``: tensors are on the CPU though the text asks for CUDA ones.

    Raises NeedsToolkit for what only nvcc understands.
    """
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    tokens = live_tokens(tokenize(text))
    edits = _Edits(text)
    kernels: dict[str, tuple[str, ...]] = {}
    for item in items_of(tokens, 0, len(tokens), (), read_macros(tokens)):
        first, last = item.tokens[0], item.tokens[-1]
        words = {t.text for t in item.tokens}
        head, is_function = head_of(item.tokens)
        specifiers = {t.text for t in head}
        if first.text.startswith(REGISTRATIONS):
            edits.replace(first.start, last.end, "")
        elif "__global__" in specifiers:
            name = function_name(head)
            if name is not None and _stub(item.tokens, name, edits):
                kernels[name] = _template_names(item.tokens)
        elif "__shared__" in specifiers or (
            is_function and "__device__" in specifiers and not specifiers & {"__host__", "constexpr"}
        ):
            # Device functions, and dynamic shared memory that is declared outside its kernel.
            edits.replace(first.start, last.end, "")
        elif words & {"struct", "class"} and "__device__" in words:
            _empty_device_methods(item.tokens, edits)
    _check(tokens)
    for start, end, new in _rewrites(tokens, cpu):
        edits.replace(start, end, new)
    for token in tokens:
        if token.kind == "pp":
            _directive(token, cpu, edits)
    return HostUnit(edits.apply(), kernels)


def _check(tokens: Sequence[Token]) -> None:
    for position, token in enumerate(tokens):
        if token.kind == "id" and token.text in _UNSUPPORTED:
            raise NeedsToolkit(f"the host code {_UNSUPPORTED[token.text]}")
        if token.text == "__device__" and tokens[position - 1].text in (")", "]"):
            raise NeedsToolkit("the host code holds a __device__ lambda")


def _template_names(tokens: Sequence[Token]) -> tuple[str, ...]:
    """``template <typename T, int N = 4>`` -> ``("T", "N")``."""
    if [t.text for t in tokens[:2]] != ["template", "<"]:
        return ()
    names = []
    for part in _split(tokens[2 : match_angle(tokens, 1)]):
        texts = [t.text for t in part]
        declared = part[: texts.index("=")] if "=" in texts else part
        names.append(declared[-1].text if len(declared) > 1 else "")
    return tuple(names)


def _stub(tokens: Sequence[Token], kernel: str, edits: _Edits) -> bool:
    """Give the kernel at ``tokens`` a body that launches it. False for a declaration without a body."""
    position = next(
        (
            i
            for i, t in enumerate(tokens)
            if t.text == kernel and t.kind == "id" and tokens[i + 1 : i + 2] and tokens[i + 1].text == "("
        ),
        None,
    )
    if position is None:
        raise NeedsToolkit(f"the parameters of kernel {kernel} cannot be read")
    close = match_close(tokens, position + 1)
    body = close + 1
    if body >= len(tokens) or tokens[body].text != "{":
        return False
    names = [_parameter_name(part, kernel) for part in _split(tokens[position + 2 : close])]
    addresses = ", ".join(f"::dice::arg({name})" for name in names)
    arguments = (
        f"::dice::Arg dice_args[] = {{{addresses}}};" if names else "::dice::Arg* dice_args = nullptr;"
    )
    edits.replace(
        tokens[body].start,
        tokens[-1].end,
        f'{{ static ::dice::Slot dice_slot{{"{kernel}", __PRETTY_FUNCTION__}}; {arguments} '
        f"::dice::launch(dice_slot, dice_args, {len(names)}); }}",
    )
    return True


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Parameters between top-level commas; angle brackets count, as parameters hold types and no comparisons."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.text in ("(", "[", "{", "<"):
            depth += 1
        elif token.text in (")", "]", "}", ">"):
            depth -= 1
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part and [t.text for t in part] != ["void"]]


def _parameter_name(tokens: list[Token], kernel: str) -> str:
    texts = [t.text for t in tokens]
    until = texts.index("=") if "=" in texts else len(texts)
    if "[" in texts[:until]:
        until = texts.index("[")
    pointed = re.search(r"\( [*&] (?:const )?(\w+) \)", " ".join(texts[:until]))
    if pointed:  # a pointer to an array or a function
        return pointed.group(1)
    if until < 2 or tokens[until - 1].kind != "id" or "..." in "".join(texts):
        raise NeedsToolkit(f"kernel {kernel} has a parameter without a name")
    return tokens[until - 1].text


def _empty_device_methods(tokens: Sequence[Token], edits: _Edits) -> None:
    """Bodies of methods that only run on the GPU go: they use names that a host compiler does not know."""
    position = 0
    while position < len(tokens):
        if tokens[position].text != "__device__":
            position += 1
            continue
        start = position
        while start > 0 and tokens[start - 1].text not in (";", "{", "}", ":"):
            start -= 1
        stop = position
        while stop < len(tokens) and tokens[stop].text not in (";", "{"):
            stop = match_close(tokens, stop) + 1 if tokens[stop].text == "(" else stop + 1
        if stop < len(tokens) and tokens[stop].text == "{":
            close = min(match_close(tokens, stop), len(tokens) - 1)
            if not {t.text for t in tokens[start:stop]} & {"__host__", "constexpr"}:
                edits.replace(tokens[stop].start, tokens[close].end, "{ __builtin_trap(); }")
            stop = close
        position = stop + 1


def _rewrites(tokens: Sequence[Token], cpu: bool) -> list[tuple[int, int, str]]:
    """Insertions that turn launches into calls and, for the CPU, CUDA tensors into CPU ones."""
    found: list[tuple[int, int, str]] = []
    for position, token in enumerate(tokens):
        if _adjacent(tokens, position, "<"):
            found += _launch(tokens, position)
        elif cpu and token.kind == "id" and token.text in _CPU_WORDS:
            found.append((token.start, token.end, _CPU_WORDS[token.text]))
        elif (
            cpu
            and token.text == "CUDA"
            and [t.text for t in tokens[max(0, position - 2) : position]] == ["DeviceType", "::"]
        ):
            found.append((token.start, token.end, "CPU"))
    return found


def _adjacent(tokens: Sequence[Token], position: int, text: str) -> bool:
    three = tokens[position : position + 3]
    return (
        len(three) == 3
        and all(t.text == text for t in three)
        and three[0].end == three[1].start
        and three[1].end == three[2].start
    )


def _launch(tokens: Sequence[Token], opening: int) -> list[tuple[int, int, str]]:
    """``callee<<<config>>>(args)`` -> ``(::dice::configure(config), callee(args))``."""
    start = _callee_start(tokens, opening)
    closing = opening + 3
    while closing < len(tokens) and not _adjacent(tokens, closing, ">"):
        if tokens[closing].text in ("(", "[", "{"):
            closing = match_close(tokens, closing)
        closing += 1
    call = closing + 3
    if call >= len(tokens) or tokens[call].text != "(":
        raise NeedsToolkit("a kernel launch cannot be read")
    end = match_close(tokens, call)
    if end >= len(tokens):
        raise NeedsToolkit("a kernel launch does not end")
    config = _source_between(tokens, opening + 3, closing)
    lines = tokens[opening].start, tokens[closing + 2].end
    return [
        (tokens[start].start, tokens[start].start, f"(::dice::configure({config}), "),
        (*lines, ""),
        (tokens[end].end, tokens[end].end, ")"),
    ]


def _source_between(tokens: Sequence[Token], start: int, stop: int) -> str:
    """The tokens' text on one line; words stay apart."""
    return " ".join(token.text for token in tokens[start:stop])


def _callee_start(tokens: Sequence[Token], opening: int) -> int:
    position = opening - 1
    while position >= 0:
        if tokens[position].text == ">":
            position = _angle_start(tokens, position) - 1
        elif tokens[position].text == ")":
            position = _bracket_start(tokens, position)
            if (
                position
                and tokens[position - 1].kind == "id"
                and tokens[position - 1].text not in ("return", "else")
            ):
                position -= 1
            break
        if position < 0 or tokens[position].kind != "id":
            break
        if position and tokens[position - 1].text == "template":
            position -= 1
        if position and tokens[position - 1].text == "::":
            position -= 1
            if position and (tokens[position - 1].kind == "id" or tokens[position - 1].text == ">"):
                position -= 1
                continue
        break
    if position < 0 or (position and tokens[position - 1].text in (".", "->")):
        raise NeedsToolkit("the kernel of a launch cannot be read")
    return position


def _angle_start(tokens: Sequence[Token], closing: int) -> int:
    depth, position = 0, closing
    while position >= 0:
        text = tokens[position].text
        if text == ")":
            position = _bracket_start(tokens, position)
        elif text == ">":
            depth += 1
        elif text == "<":
            depth -= 1
            if depth == 0:
                return position
        elif text in (";", "{", "}"):
            break
        position -= 1
    raise NeedsToolkit("the template arguments of a launch cannot be read")


def _bracket_start(tokens: Sequence[Token], closing: int) -> int:
    depth = 0
    for position in range(closing, -1, -1):
        depth += (tokens[position].text in (")", "]", "}")) - (tokens[position].text in ("(", "[", "{"))
        if depth == 0:
            return position
    raise NeedsToolkit("the brackets around a launch do not match")


def _directive(token: Token, cpu: bool, edits: _Edits) -> None:
    name = directive_name(token.text)
    if name == "include":
        header = re.search(r'[<"]([^>"]+)[>"]', token.text)
        if header and _HEADERS_DROPPED.match(header.group(1)):
            edits.replace(token.start, token.end, "")
    elif name == "define" and ("<<<" in token.text or (cpu and any(w in token.text for w in _CPU_WORDS))):
        match = re.match(r"#\s*define\s+\w+(\([^)]*\))?", token.text)
        if match is None:
            return
        body = token.text[match.end() :].replace("\\\n", " \n")
        changed = _Edits(body)
        for start, end, new in _rewrites([t for t in tokenize(body) if t.kind != "pp"], cpu):
            changed.replace(start, end, new)
        edits.replace(token.start, token.end, match.group() + changed.apply().replace("\n", " "))
