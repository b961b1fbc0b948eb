"""One kernel: which schedule computes a value, and under which names it knows sizes and memory.

The schedule follows from what is computed, as in ``core_writer``: pointwise work is one thread an element, or for four
elements of a large tensor; a reduction over the last dimensions is one warp a row up to 256 columns and one block a row
beyond; a reduction over inner dimensions is one thread a row.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from dice_training.cuke.traced.along import AlongWriter
from dice_training.cuke.traced.emit import Emitter, NeedsMemory
from dice_training.cuke.traced.rows import PLAIN, Plain, RowWriter
from dice_training.cuke.traced.tiles import tiled_product, write_tiled
from dice_training.cuke.traced.values import (
    Buffer,
    Dim,
    Ranked,
    Reduced,
    Scanned,
    Value,
    reachable,
    times,
    values,
)
from dice_training.cuke.traced.vectors import four_at_a_time

if TYPE_CHECKING:
    from dice_training.cuke.traced.program import Program


class KernelWriter:
    """One attempt at one kernel; raises NeedsMemory where something has to be computed before."""

    def __init__(self, program: Program, value: Value, plain: Plain | None = None) -> None:
        self.program, self.value, self.plain = program, value, plain
        self.reads: list[Buffer] = []
        self.used_sizes: list[str] = []
        self.new_sizes: dict[str, str] = {}
        self.helpers: dict[str, list[str]] = {}
        self.late_helpers: dict[str, list[str]] = {}
        """They stand behind the others."""
        self.grid = "(n + threads - 1) / threads"
        self.check = ""
        """A statement of the host: what sizes have to be for this kernel."""
        self.emitter = Emitter(self.size_name, self.buffer_name)
        self.emitter.names |= {"idx", "row", "lane", "base", "c", "out"} | program.names

    def simple(self, out: Buffer, rng: random.Random) -> KernelWriter:
        """The same kernel by a hasty hand: same signature, same launch."""
        twin = KernelWriter(self.program, self.value, rng.choice(PLAIN))
        twin.reads, twin.used_sizes = list(self.reads), list(self.used_sizes)
        twin.new_sizes = dict(self.new_sizes)
        twin.emitter.names |= set(self.new_sizes)
        twin.write(out)
        return twin

    def size_name(self, dim: Dim, base: str | None = None) -> str:
        """The kernel's parameter for a size; ``base`` names it where it has no name yet."""
        known = {**self.program.sizes, **self.new_sizes}
        names = [name for name, text in known.items() if text == dim.text]
        names.sort(key=lambda name: name not in self.used_sizes)
        name = next((n for n in names if base is None or n.rstrip("0123456789") == base), None)
        if name is None:
            name = self._new_name(dim, base)
            self.new_sizes[name] = dim.text
            self.emitter.names.add(name)
        if name not in self.used_sizes:
            self.used_sizes.append(name)
        return name

    def _new_name(self, dim: Dim, base: str | None) -> str:
        taken = self.program.names | set(self.new_sizes)
        if base is None:
            owner, dot, rest = dim.text.partition(".size(")
            plain = dot and rest.rstrip(")").isdigit() and owner.isidentifier()
            base = f"{owner}_{rest.rstrip(')')}" if plain else "d"
            names = [base] if plain else []
            names += [f"d{i}" for i in range(99)]
        else:
            names = [base, *(f"{base}{i}" for i in range(1, 99))]
        return next(name for name in names if name not in taken)

    def buffer_name(self, buffer: Buffer) -> str:
        if buffer not in self.reads:
            self.reads.append(buffer)
        return buffer.text

    def write(self, out: Buffer) -> None:
        value = self.value
        if isinstance(value, Scanned | Ranked):
            AlongWriter(self, out).ordered(value)
            return
        found = [
            inner
            for inner in reachable([value], lambda v: v.memory is None and not isinstance(v, Reduced))
            if isinstance(inner, Reduced) and inner.memory is None
        ]
        if not found:
            tiled = self.program.products == 1 and value.dtype == torch.float32
            product = tiled_product(value) if tiled else None
            if product is not None:
                write_tiled(self, value, product, out)
            else:
                self._pointwise(out)
            return
        first = found[0]
        shape, dims = first.domain
        kept = [size for dim, size in enumerate(shape) if dim not in dims and size != 1]
        of_rows = [size for size in values(value.shape) if size != 1] == kept
        consecutive = dims == tuple(range(dims[0], dims[-1] + 1))
        of_elements = values(value.shape) == shape or (
            consecutive and times(value.shape).value == times(first.arg.shape).value
        )
        if not (of_rows or of_elements):
            raise NeedsMemory(first)
        RowWriter(self, out).reduce(first, value, of_rows)

    def _pointwise(self, out: Buffer) -> None:
        e = self.emitter
        n = self.size_name(Dim(times(out.shape).value, f"{out.text}.numel()"), "n")
        self.grid = f"({n} + threads - 1) / threads"
        e.line("int idx = blockIdx.x * blockDim.x + threadIdx.x;")
        with e.inside(f"if (idx < {n})", loop=False):
            e.whole = "idx"
            text = e.value(self.value, e.split("idx", self.value.shape))
            e.line(f"{out.text}[idx] = {text};")
        four_at_a_time(self, out, n)
