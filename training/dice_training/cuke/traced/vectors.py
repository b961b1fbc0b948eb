"""Four elements at a time, by loads and stores of 128 bits: elementwise work on large tensors, and long rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from dice_training.cuke.traced.values import Buffer, times

if TYPE_CHECKING:
    from dice_training.cuke.traced.kernels import KernelWriter

LARGE, LONG = 1 << 20, 4096
"""Elements of a tensor, and columns of a row, from which it is worth the longer text."""
_UNIT = "    "
_ACCESS = re.compile(r"\b(\w+)\[([^\]]*)\]")


def four_at_a_time(kernel: KernelWriter, out: Buffer, n: str) -> None:
    """Rewrite the statements of ``kernel``, one thread an element, where each access is at its own number.

    The hasty twin has four elements a thread too, but reads them one after another.
    """
    e = kernel.emitter
    count = times(out.shape).value
    body = e.block.lines[2:-1]
    text = "\n".join(body)
    accesses = _ACCESS.findall(text)
    own = all(place == "idx" for _, place in accesses) and len(accesses) == len(re.findall(r"\bidx\b", text))
    buffers = [*kernel.reads, out]
    real = all(buffer.dtype == torch.float32 for buffer in buffers)
    if count < LARGE or count % 4 or not own or not real or "for (" in text:
        return
    k = e.fresh("k")
    named = {buffer.text: e.fresh(f"{buffer.text}4") for buffer in buffers}

    def place(found: re.Match[str]) -> str:
        return f"{found[1]}[idx + {k}]" if kernel.plain else f"(&{named[found[1]]}.x)[{k}]"

    loop = [
        f"for (int {k} = 0; {k} < 4; ++{k}) {{",
        *(_ACCESS.sub(place, line) for line in body),
        "}",
    ]
    if not kernel.plain:
        loads = [
            f"float4 {named[b.text]} = *reinterpret_cast<const float4*>({b.text} + idx);"
            for b in kernel.reads
        ]
        store = f"*reinterpret_cast<float4*>({out.text} + idx) = {named[out.text]};"
        loop = [*loads, f"float4 {named[out.text]};", "#pragma unroll", *loop, store]
    e.block.lines = [
        "int idx = (blockIdx.x * blockDim.x + threadIdx.x) * 4;",
        f"if (idx < {n}) {{",
        *(_UNIT + line for line in loop),
        "}",
    ]
    kernel.grid = f"({n} / 4 + threads - 1) / threads"
    kernel.check = f"TORCH_CHECK({n} % 4 == 0);"


def rows_by_four(kernel: KernelWriter, out: Buffer, cols: str, columns: int) -> None:
    """Rewrite those loops of a block over its row in which every access is at the column's own place."""
    if columns < LONG or columns % 4:
        return
    real = {b.text for b in [*kernel.reads, out] if b.dtype == torch.float32}
    head = f"for (int c = threadIdx.x; c < {cols}; c += blockDim.x) {{"
    lines, made = kernel.emitter.block.lines, list[str]()
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if line != head:
            made.append(line)
            continue
        end = lines.index("}", place)
        body = lines[place:end]
        place = end + 1
        text = "\n".join(body)
        accesses = [found for found in _ACCESS.findall(text) if found[1] in ("base + c", "c")]
        at = dict(accesses)
        own = len(accesses) == len(re.findall(r"\bc\b", text)) and len(set(accesses)) == len(at)
        if not own or not set(at) <= real or "base + c" not in at.values() or "for (" in text:
            made += [head, *body, "}"]
            continue
        written = out.text if out.text in at else None
        made.append(f"for (int c = threadIdx.x * 4; c < {cols}; c += blockDim.x * 4) {{")
        made += [_UNIT + text for text in _by_four(kernel, body, at, written)]
        made.append("}")
        kernel.check = f"TORCH_CHECK({cols} % 4 == 0);"
    kernel.emitter.block.lines = made


def _by_four(kernel: KernelWriter, body: list[str], at: dict[str, str], written: str | None) -> list[str]:
    """``body``, indented once, for four elements. ``at``: buffers and where the first of the four is in each;
    ``written``: the one that is not read."""
    e = kernel.emitter
    before = set(e.names)
    k = e.fresh("k")
    named = {name: e.fresh(f"{name}4") for name in at}
    e.names = before  # they are free again behind the braces
    made = [
        f"float4 {named[name]} = *reinterpret_cast<const float4*>({name} + {place});"
        for name, place in at.items()
        if name != written
    ]
    if written:
        made.append(f"float4 {named[written]};")
    made += ["#pragma unroll", f"for (int {k} = 0; {k} < 4; ++{k}) {{"]
    made += [
        _ACCESS.sub(lambda found: f"(&{named[found[1]]}.x)[{k}]" if found[1] in at else found[0], line)
        for line in body
    ]
    made.append("}")
    if written:
        made.append(f"*reinterpret_cast<float4*>({written} + {at[written]}) = {named[written]};")
    return made
