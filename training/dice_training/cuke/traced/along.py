"""Kernels that go along rows: scans and orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dice_training.cuke.traced.emit import Index
from dice_training.cuke.traced.values import (
    Dim,
    Ranked,
    Scanned,
    ctype,
    times,
)

if TYPE_CHECKING:
    pass
from dice_training.cuke.traced.rows import RowWriter


class AlongWriter(RowWriter):
    """Running results, and elements at their place in the order of their row."""

    def ordered(self, value: Scanned | Ranked) -> None:
        """A running result, or elements written to their place in the order of their row."""
        self.shape, self.dims = value.arg.shape, (value.dim,)
        if isinstance(value, Scanned):
            self._scan(value)
        else:
            self._rank(value)

    def _scan(self, value: Scanned) -> None:
        self.schedule = "thread"
        last = value.dim == len(self.shape) - 1
        if last and value.name == "cumsum" and value.dtype == torch.float32:
            self._warp_scan(value)
            return
        self.open(self.shape[value.dim], last, True)
        self._running(value)

    def _running(self, value: Scanned) -> None:
        """One thread goes along its row."""
        e = self.e
        acc = e.declare(ctype(value.dtype), "acc", value.start)
        e.block.own.discard(acc)
        with e.inside(self.loop_head()):
            index = self.element()
            term = e.variable(value.arg, index)
            e.line(value.step.format(term))
            e.line(f"{self.out.text}[{self.flat}] = {value.result};")

    def _warp_scan(self, value: Scanned) -> None:
        """A warp goes along the row, 32 elements at a time."""
        e = self.e
        self.schedule = "warp"
        if self.plain is not None:
            self.plain = "serial"
        self.open(self.shape[value.dim], True, True)
        if self.plain is not None:
            self._running(value)
            return
        e.line("float carry = 0.0f;")
        e.names |= {"carry", "start", "c", "left", "o"}
        with e.inside(f"for (int start = 0; start < {self.cols}; start += 32)"):
            e.line("int c = start + lane;")
            v = e.declare("float", "v", "0.0f")
            e.block.own.discard(v)
            with e.inside(f"if (c < {self.cols})", loop=False):
                e.line(f"{v} = {e.value(value.arg, self.element())};")
            with e.inside("for (int o = 1; o < 32; o <<= 1)"):
                e.line(f"float left = __shfl_up_sync(0xffffffff, {v}, o);")
                e.line(f"if (lane >= o) {v} += left;")
            e.line(f"{v} += carry;")
            e.line(f"if (c < {self.cols}) {self.out.text}[{self.flat}] = {v};")
            e.line(f"carry = __shfl_sync(0xffffffff, {v}, 31);")

    def _rank(self, value: Ranked) -> None:
        e, kernel = self.e, self.kernel
        n = kernel.size_name(times(self.shape), "n")
        size = self.shape[value.dim]
        kernel.grid = f"({n} + threads - 1) / threads"
        e.line("int idx = blockIdx.x * blockDim.x + threadIdx.x;")
        e.line(f"if (idx >= {n}) return;")
        cols = kernel.size_name(size, "cols")
        inner_dims = self.shape[value.dim + 1 :]
        index = e.split("idx", self.shape)
        if times(inner_dims).value == 1:
            e.line(f"int row = idx / {cols};")
            e.line(f"int c = idx % {cols};")
            other_flat, place, stride = f"row * {cols} + k", "row", ""
        else:
            inner = kernel.size_name(times(inner_dims), "inner")
            e.line(f"int row = idx / ({cols} * {inner});")
            e.line(f"int c = idx / {inner} % {cols};")
            e.line(f"int j = idx % {inner};")
            other_flat, place, stride = f"(row * {cols} + k) * {inner} + j", "row", inner
        v = e.variable(value.arg, index)
        e.block.own.discard(v)
        e.declare("int", "rank", "0")
        coords = [(lambda d: "k" if d == value.dim else index.coord(d))(d) for d in range(len(self.shape))]
        sign = ">" if value.descending else "<"
        with e.inside(f"for (int k = 0; k < {cols}; ++k)"):
            other = Index(self.shape, other_flat, lambda d: coords[d])
            u = e.variable(value.arg, other)
            e.line(f"rank += {u} {sign} {v} || ({u} == {v} && k < c);")
        keep = self.out.shape[value.dim] if len(self.out.shape) == len(self.shape) else Dim(1, "1")
        if keep.value != size.value:
            first = value.first
            condition = f"rank == {first}" if keep.value == 1 else f"rank < {e.size(keep)}"
            if first and keep.value != 1:
                condition = f"rank >= {first} && rank < {first} + {e.size(keep)}"
            target = f"{place}" if keep.value == 1 else f"{place} * {e.size(keep)} + rank"
        else:
            condition, target = "", f"{place} * {cols} + rank"
        if stride:
            target = f"({target}) * {stride} + j" if " " in target else f"{target} * {stride} + j"
        result = "c" if value.index else v
        text = f"{self.out.text}[{target}] = {result};"
        e.line(f"if ({condition}) {text}" if condition else text)
