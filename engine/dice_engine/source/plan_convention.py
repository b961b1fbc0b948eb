"""A kernel that nobody in the file launches, of the one form that leaves no doubt: a thread an element.

Every pointer is read and written at the thread's own index only, below the only integer parameter, which therefore is
the length of every buffer. Anything else is not guessed.
"""

from __future__ import annotations

import re

from dice_engine.source.cuda import KernelSpan, find_kernels
from dice_engine.source.cuda_lex import lex
from dice_engine.source.host_types import KINDS, is_float
from dice_engine.source.lines import to_bytes

ORIGIN = "convention: one thread an element, all buffers as long as the only integer parameter"
_INDEX = re.compile(
    rb"\b(?:int|unsigned|unsigned int|long|size_t|auto|int64_t|uint32_t)\s+(\w+)\s*=\s*"
    rb"(?:blockIdx\.x\s*\*\s*blockDim\.x\s*\+\s*threadIdx\.x|blockDim\.x\s*\*\s*blockIdx\.x\s*\+\s*threadIdx\.x"
    rb"|threadIdx\.x\s*\+\s*blockIdx\.x\s*\*\s*blockDim\.x|threadIdx\.x\s*\+\s*blockDim\.x\s*\*\s*blockIdx\.x)\s*;"
)
_OTHER_WORK = re.compile(rb"__shared__|__sync|__shfl|atomic|gridDim|\.[yz]\b|\basm\b|#")


def convention_words(text: str, kernel_name: str) -> str | None:
    """The annotation that says how such a kernel is run; None for every other kernel."""
    spans = [span for span in find_kernels(text) if span.name == kernel_name and span.editable]
    return _words(text, spans[0]) if len(spans) == 1 and not spans[0].template_params else None


def _words(text: str, kernel: KernelSpan) -> str | None:
    whole = [
        p.name
        for p in kernel.params
        if not p.pointer and KINDS.get(p.ctype, "") in ("int32", "int64", "uint64")
    ]
    pointers = [p for p in kernel.params if p.pointer]
    inputs = [p.name for p in pointers if p.const]
    others = [p.name for p in pointers if not p.const]
    numbers = (
        all(is_float(KINDS[p.ctype]) for p in kernel.params if p.name not in whole)
        if _known(kernel)
        else False
    )
    if len(whole) != 1 or not inputs or not others or not numbers:
        return None
    size = whole[0]
    body = lex(to_bytes(text)).code(kernel.body_start, kernel.body_end)
    index = _INDEX.findall(body)
    if len(index) != 1 or _OTHER_WORK.search(body):
        return None
    name, end = re.escape(index[0]), re.escape(size.encode())
    if not re.search(rb"\b" + name + rb"\s*(?:<|>=)\s*" + end + rb"\b", body):
        return None
    for pointer in (*inputs, *others):
        word = rb"(?<![.\w])" + re.escape(pointer.encode()) + rb"\b"  # not the x of blockIdx.x
        uses = len(re.findall(word, body))
        if not uses or uses != len(re.findall(word + rb"\s*\[\s*" + name + rb"\s*\]", body)):
            return None
    reads = ", ".join(f"{one}[{size}]" for one in inputs)
    writes = ", ".join(f"{one}[{size}]" for one in others)
    sizes = "; ".join(f"{size}={count}" for count in (1155, 125, 17933, 1 << 24))
    return f"grid=({size}+255)/256 block=256 in({reads}) inout({writes}) sizes({sizes})"


def _known(kernel: KernelSpan) -> bool:
    return all(p.ctype in KINDS for p in kernel.params)
