"""What the device text needs before g++ reads it as C++: shared-memory forms, and which kernels wait for others."""

from __future__ import annotations

import re

from dice_engine.verify.build.device_source import DeviceSource
from dice_engine.verify.build.interface import BuildError
from dice_engine.verify.build.lexer import live_tokens, read_macros, tokenize
from dice_engine.verify.build.toplevel import declared_bodies

_PARENS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_ALIGNED = rf"(?:__align__|alignas|__attribute__|__builtin_align__)\s*{_PARENS}"
_DYNAMIC_SHARED = re.compile(
    rf"(?:{_ALIGNED}\s*)?\b(?:extern\s+(?:volatile\s+)?(?:{_ALIGNED}\s*)?__shared__|__shared__\s+extern)\b"
    rf"([^;{{}}()\[\]=]*(?:{_ALIGNED}[^;{{}}()\[\]=]*)*?)\b(\w+)\s*\[[^\]\n]*\]"
)
_WAITS = re.compile(
    r"__sync\w+|__shfl\w*|__ballot\w*|__any_sync|__all_sync|__activemask\w*|__match\w+|__reduce_\w+_sync"
    r"|cooperative_groups|this_thread_block|tiled_partition|thread_block\w*|coalesced_\w+|grid_group|this_grid"
)
_WHO_IS_THERE = re.compile(r"\b(?:coalesced_threads|__activemask)\b")
_UNSUPPORTED = {
    r"asm": "inline PTX assembly",
    r"cublas\w*": "cuBLAS",
    r"cudnn\w*": "cuDNN",
    r"cufft\w*": "cuFFT",
    r"cusparse\w*": "cuSPARSE",
    r"thrust": "Thrust",
    r"cub": "CUB",
    r"cutlass|cute": "CUTLASS",
    r"curand\w*": "cuRAND",
    r"wmma|nvcuda": "wmma (tensor cores)",
    r"libcudacxx": "libcu++ (cuda/...)",
    r"cuda_pipeline\w*|__pipeline_\w+|cuda_awbarrier\w*": "asynchronous copies",
}


def cpu_text(source: DeviceSource) -> str:
    """The device text as C++, line by line. Raises BuildError for what has no CPU form, with its name and line."""
    text = source.text
    for token in live_tokens(tokenize(text)):
        word = token.text if token.kind == "id" else ""
        if token.kind == "pp":
            include = re.match(r"#\s*include\s*[<\"](\w+/?)", token.text)
            word = include.group(1) if include else ""
            word = {"mma": "wmma", "cuda/": "libcudacxx"}.get(word, word.rstrip("/"))
        for pattern, library in _UNSUPPORTED.items():
            if (
                word
                and re.fullmatch(pattern, word)
                and (token.kind == "pp" or _scoped(text, token.end, word))
            ):
                line = text.count("\n", 0, token.start) + 1
                raise BuildError(
                    f"line {line}: {library} is not supported on the CPU backend; verify on a machine with a GPU",
                    f"kernel.cu:{line}: error: {library} is not supported on the CPU backend",
                )
    text = _lanes_alone(text)
    text = re.sub(r"\b(?:__noinline__|__volatile__)\b", lambda m: " " * len(m.group()), text)
    text = re.sub(r"\b(?:static\s+__shared__|__shared__\s+static)\b", "__shared__", text)
    text = _DYNAMIC_SHARED.sub(_dynamic_shared, text)
    # `static alignas(16) float x[4]` is no C++: the alignment must lead.
    return re.sub(rf"\b__shared__(\s+)(alignas\s*{_PARENS})", r"\2\1__shared__", text)


def _lanes_alone(text: str) -> str:
    """Lanes that ask in a branch within a loop who is there with them: each is alone.

    A GPU may run them so, and those that are there in another turn of the loop must not be taken for company. (Where
    lanes then hand values on, they count on company that no branch parts.)
    """
    if not _WHO_IS_THERE.search(text) or re.search(r"shfl_(?:down|up|xor)", text):
        return text
    edits: list[int] = []
    blocks: list[str] = []
    header, parens = 0, 0
    for token in live_tokens(tokenize(text)):
        parens += (token.text == "(") - (token.text == ")")
        if token.text == "{":
            blocks.append(text[header : token.start])
        elif token.text == "}" and blocks:
            blocks.pop()
        elif _WHO_IS_THERE.fullmatch(token.text):
            around = " ".join((*blocks, text[header : token.start]))
            if re.search(r"\b(?:for|while|do)\b", around) and re.search(r"\bif\b", around):
                edits.append(token.end)
        if token.text in ("{", "}") or (token.text == ";" and parens == 0):
            header = token.end
    for end in reversed(edits):
        text = text[:end] + "_alone" + text[end:]
    return text


def _scoped(text: str, end: int, word: str) -> bool:
    """Short names (``cub``, ``asm``) mean the library only where they are used as one."""
    following = text[end:].lstrip()[:2]
    if word == "asm":
        return following[:1] in ("(", "v") or text[end:].lstrip().startswith("__volatile__")
    return word not in ("cub", "cute", "thrust", "cutlass", "wmma", "nvcuda") or following == "::"


def _dynamic_shared(match: re.Match[str]) -> str:
    """``extern __shared__ T name[]`` becomes a pointer to the block's dynamic shared memory; lines stay."""
    element = " ".join(re.sub(_ALIGNED, " ", match.group(1)).split())
    if re.search(r"\bextern\s+volatile\b", match.group()):
        element = f"volatile {element}"
    lines = "\n" * match.group().count("\n")
    return f"static {element}* const {match.group(2)} = ({element}*)dice::dynamic_shared{lines}"


def waiting_names(source: DeviceSource) -> set[str]:
    """Kernels, functions, types and macros that may meet a barrier or a warp operation, themselves or in what they use.

    By name, so it errs on the side of waiting. A kernel that a macro makes waits if any macro does.
    """
    macros = {
        name: set(re.findall(r"\w+", body)) for name, (_, body) in read_macros(tokenize(source.text)).items()
    }
    bodies = {**macros, **declared_bodies(source.text)}
    waiting = {name for name, words in bodies.items() if any(_WAITS.fullmatch(w) for w in words)}
    more = waiting
    while more:
        more = {name for name, words in bodies.items() if name not in waiting and words & waiting}
        waiting |= more
    if waiting & set(macros):
        waiting |= set(source.kernels) - set(bodies)
    return waiting
