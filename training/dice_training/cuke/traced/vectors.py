"""Elementwise work on large tensors, four elements a thread: loads and stores of 128 bits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from dice_training.cuke.traced.values import Buffer, times

if TYPE_CHECKING:
    from dice_training.cuke.traced.kernels import KernelWriter

LARGE = 1 << 20
"""Elements from which it is worth the longer text."""
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
