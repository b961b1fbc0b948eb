"""Kernels that go over rows: reductions with what is computed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from dice_training.cuke.core_writer import WARP_WIDTH
from dice_training.cuke.device import NEUTRAL, block_helper, join, warp_helper
from dice_training.cuke.traced.chains import below, prepare_chain
from dice_training.cuke.traced.emit import Index
from dice_training.cuke.traced.values import (
    Buffer,
    Constant,
    Dim,
    Moved,
    Point,
    Reduced,
    Size,
    Value,
    ctype,
    reachable,
    times,
    values,
)
from dice_training.cuke.traced.vectors import rows_by_four

if TYPE_CHECKING:
    from dice_training.cuke.traced.kernels import KernelWriter

Schedule = Literal["warp", "block", "thread"]
Plain = Literal["serial", "redundant", "tree"]
"""How a hasty hand reduces a row: one thread does it all, each thread does all of it, or a tree in shared memory."""
PLAIN: tuple[Plain, ...] = ("serial", "serial", "redundant", "tree")
_STAT_NAMES = {"sum": "total", "max": "peak", "min": "low", "prod": "product"}
_HOISTED = frozenset(("mean", "var", "std", "norm", "inv", "rstd", "lse"))
"""Statistics that keep their name."""
_INTEGER_NEUTRAL = {"sum": "0", "prod": "1", "max": "INT64_MIN", "min": "INT64_MAX"}


class RowWriter:
    """One row of ``shape`` over ``dims`` for each warp, block or thread."""

    def __init__(self, kernel: KernelWriter, out: Buffer) -> None:
        self.kernel, self.e, self.out = kernel, kernel.emitter, out
        self.plain = kernel.plain

    def reduce(self, first: Reduced, value: Value, of_rows: bool) -> None:
        """The kernel that computes ``value`` from ``first`` and other reductions over the same rows."""
        self.shape, self.dims = first.arg.shape, first.dims
        reductions = self._reductions(value, first.domain)
        wide = all(r.arg.dtype in (torch.float32, torch.bool) and not r.nans for r in reductions)
        arg = any(r.op.startswith("arg") for r in reductions)
        trailing = self.dims == tuple(range(len(self.shape) - len(self.dims), len(self.shape)))
        columns = times([self.shape[d] for d in self.dims])
        consecutive = self.dims == tuple(range(self.dims[0], self.dims[-1] + 1))
        self.schedule: Schedule = "thread"
        if wide and (trailing or not consecutive):
            self.schedule = "warp" if columns.value <= WARP_WIDTH or arg else "block"
        if self.plain == "tree" and self.schedule != "block":
            self.plain = "serial"
        self.open(columns, trailing, consecutive)
        if self.plain is None:
            prepare_chain(self.kernel, value, first)
        elif self.plain == "tree":
            self.e.names.add("sdata")
            self.e.line("__shared__ float sdata[256];")
        for level in self._levels(reductions):
            plain = [r for r in level if not r.op.startswith("arg")]
            if plain:
                self._phase(plain)
            for r in level:
                if r.op.startswith("arg"):
                    self._extreme(r)
            if self.plain is None:
                self._hoist(value)
        self._store(value, of_rows)
        if self.schedule == "block" and self.plain is None and trailing:
            rows_by_four(self.kernel, self.out, self.cols, columns.value)

    def _reductions(self, value: Value, domain: object) -> list[Reduced]:
        return [
            v
            for v in reachable([value], lambda v: v.memory is None)
            if isinstance(v, Reduced) and v.memory is None and v.domain == domain
        ]

    def _levels(self, reductions: list[Reduced]) -> list[list[Reduced]]:
        """Groups that can share a loop: none needs another of its group."""
        level: dict[int, int] = {}
        for r in reductions:
            below = [
                level[id(v)]
                for v in reachable([r.arg], lambda v: v.memory is None)
                if id(v) in level and v is not r
            ]
            level[id(r)] = 1 + max(below, default=-1)
        groups = [[r for r in reductions if level[id(r)] == k] for k in range(1 + max(level.values()))]
        return [group for group in groups if group]

    def open(self, columns: Dim, trailing: bool, consecutive: bool) -> None:
        """The statements up to the first loop: which row this is, and where its elements are."""
        e, kernel = self.e, self.kernel
        self.kept = tuple(dim for d, dim in enumerate(self.shape) if d not in self.dims)
        rows = times(self.kept)
        row = "idx" if self.schedule == "thread" else "row"
        if self.schedule == "thread":
            n = kernel.size_name(rows, "n")
            self.cols = kernel.size_name(columns, "cols")
            kernel.grid = f"({n} + threads - 1) / threads"
            e.line("int idx = blockIdx.x * blockDim.x + threadIdx.x;")
            e.line(f"if (idx >= {n}) return;")
        elif self.schedule == "warp":
            count = kernel.size_name(rows, "rows")
            self.cols = kernel.size_name(columns, "cols")
            kernel.grid = f"({count} + 7) / 8"
            e.line("int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);")
            e.line("int lane = threadIdx.x & 31;")
            e.line(f"if (row >= {count}) return;")
            if self.plain == "serial":
                e.line("if (lane != 0) return;")
        else:
            self.cols = kernel.size_name(columns, "cols")
            kernel.grid = rows.text
            e.line("int row = blockIdx.x;")
            if self.plain == "serial":
                e.line("if (threadIdx.x != 0) return;")
        self.row = e.split(row, self.kept, home=e.block)
        self.flat: str | None = None
        if trailing:
            e.line(f"size_t base = (size_t){row} * {self.cols};")
            self.flat = "base + c"
        elif consecutive:
            inner = kernel.size_name(times(self.shape[self.dims[-1] + 1 :]), "inner")
            e.line(f"size_t base = (size_t)({row} / {inner}) * {self.cols} * {inner} + {row} % {inner};")
            self.flat = f"base + (size_t)c * {inner}"

    def element(self) -> Index:
        """The place of column ``c`` of this row in the whole shape."""
        reduced = tuple(self.shape[d] for d in self.dims)
        known = self.e.places.get((self.flat or "", values(self.shape)))
        if known is not None:
            return known
        columns = self.e.split("c", reduced, letter="k")
        row_of = {d: place for place, d in enumerate(d for d in range(len(self.shape)) if d not in self.dims)}

        def coord(dim: int) -> str:
            if dim in row_of:
                return self.row.coord(row_of[dim])
            return columns.coord(self.dims.index(dim))

        index = Index(self.shape, self.flat, coord)
        if self.flat:
            self.e.places[self.flat, values(self.shape)] = index
        return index

    def loop_head(self, storing: bool = False) -> str:
        """The loop over the row's columns; ``storing``: the one that writes results."""
        if self.plain == "serial" or (self.plain == "redundant" and not storing):
            return f"for (int c = 0; c < {self.cols}; ++c)"
        return {
            "warp": f"for (int c = lane; c < {self.cols}; c += 32)",
            "block": f"for (int c = threadIdx.x; c < {self.cols}; c += blockDim.x)",
            "thread": f"for (int c = 0; c < {self.cols}; ++c)",
        }[self.schedule]

    def _phase(self, reductions: list[Reduced]) -> None:
        e = self.e
        names = []
        for r in reductions:
            integer = not r.dtype.is_floating_point
            neutral = _INTEGER_NEUTRAL[r.op] if integer else NEUTRAL[r.op]  # type: ignore[index]
            if r.dtype == torch.float64:
                neutral = neutral.replace("1e38f", "1e300").rstrip("f")
            stat = r.name if r.name == "sq" else _STAT_NAMES[r.op]
            names.append(e.declare(ctype(r.dtype), stat, neutral))
            e.block.own.discard(names[-1])
        with e.inside(self.loop_head()):
            terms = [self._term(r.arg) for r in reductions]
            for r, name, term in zip(reductions, names, terms, strict=True):
                if r.op in ("max", "min") and (r.nans or r.dtype != torch.float32):
                    sign = ">" if r.op == "max" else "<"
                    wins = f"{term} {sign} {name} || isnan({term})" if r.nans else f"{term} {sign} {name}"
                    e.line(f"if ({wins}) {name} = {term};")
                else:
                    e.line(join(r.op, name, term))  # type: ignore[arg-type]
        for r, name in zip(reductions, names, strict=True):
            if self.plain == "tree":
                self._tree(r.op, name)
            elif self.schedule != "thread" and self.plain is None:
                helper = f"{self.schedule}_reduce_{r.op}"
                make = warp_helper if self.schedule == "warp" else block_helper
                self.kernel.helpers[helper] = make(r.op, "    ")  # type: ignore[arg-type]
                e.line(f"{name} = {helper}({name});")
            e.stats[id(r)] = (self.row, name)

    def _tree(self, op: str, name: str) -> None:
        e = self.e
        e.line(f"sdata[threadIdx.x] = {name};")
        e.line("__syncthreads();")
        with e.inside("for (int s = blockDim.x / 2; s > 0; s >>= 1)"):
            e.line(f"if (threadIdx.x < s) {join(op, 'sdata[threadIdx.x]', 'sdata[threadIdx.x + s]')}")  # type: ignore[arg-type]
            e.line("__syncthreads();")
        e.line(f"{name} = sdata[0];")
        e.line("__syncthreads();")

    def _term(self, value: Value) -> str:
        index = self.element()
        return (
            self.e.value(value, index)
            if isinstance(value, Point) and value.inline
            else self.e.variable(value, index)
        )

    def _extreme(self, r: Reduced) -> None:
        """Where the largest (smallest) element of the row is: the first of them."""
        e = self.e
        sign = ">" if r.op == "argmax" else "<"
        worst = NEUTRAL["max" if r.op == "argmax" else "min"]
        kind = ctype(r.arg.dtype)
        if r.arg.dtype == torch.bool:
            kind, worst = "int", "-1" if r.op == "argmax" else "2"
        elif not r.arg.dtype.is_floating_point:
            worst = "INT64_MIN" if r.op == "argmax" else "INT64_MAX"
        best, where = e.declare(kind, "best", worst), e.declare("int", "where", "0")
        with e.inside(self.loop_head()):
            v = e.variable(r.arg, self.element())
            wins = f"{v} {sign} {best}"
            if r.nans:
                wins = f"!isnan({best}) && ({wins} || isnan({v}))"
            e.line(f"if ({wins}) {{ {best} = {v}; {where} = c; }}")
        if self.schedule == "warp" and self.plain is None:
            with e.inside("for (int o = 16; o > 0; o >>= 1)"):
                e.line(f"float other_best = __shfl_xor_sync(0xffffffff, {best}, o);")
                e.line(f"int other_where = __shfl_xor_sync(0xffffffff, {where}, o);")
                wins = f"other_best {sign} {best} || (other_best == {best} && other_where < {where})"
                with e.inside(f"if ({wins})", loop=False):
                    e.line(f"{best} = other_best;")
                    e.line(f"{where} = other_where;")
        e.stats[id(r)] = (self.row, where)

    def _hoist(self, root: Value) -> None:
        """Compute once for the row what depends on its statistics alone."""
        e = self.e
        rows = times(self.kept).value
        if times(self.shape).value == rows:
            return
        level: set[int] = set(e.stats)
        for value in reachable([root], lambda v: v.memory is None):
            if (
                value is root
                or id(value) in level
                or times(value.shape).value != rows
                or value.memory is not None
            ):
                continue
            if isinstance(value, Moved):
                if id(value.args[0]) in level:
                    level.add(id(value))
            elif isinstance(value, Point) and any(id(a) in level for a in value.args):
                if not all(id(a) in level or isinstance(a, Constant | Size) for a in value.args):
                    continue
                index = e.split(self.row.flat or "row", value.shape)
                base = value.name if value.name in _HOISTED else "s"
                text = e.value(value, index)
                if text.startswith("v") and e.block.lines[-1].strip().startswith(
                    f"{ctype(value.dtype)} {text} ="
                ):
                    name = e.fresh(base)
                    e.block.lines[-1] = e.block.lines[-1].replace(f" {text} =", f" {name} =", 1)
                    e.names.discard(text)
                    e.block.own.discard(text)
                    for key in [k for k, n in e.block.known.items() if n == text]:
                        e.block.known[key] = name
                    text = name
                e.stats[id(value)] = (index, text)
                level.add(id(value))

    def _store(self, value: Value, of_rows: bool) -> None:
        e, out = self.e, self.out.text
        if not of_rows:
            with e.inside(self.loop_head(storing=True)):
                index = self.element()
                if values(value.shape) != values(self.shape):
                    index = e.split(self.flat or "", value.shape)
                text = e.value(value, index)
                e.line(f"{out}[{e.linear(index, value.shape)}] = {text};")
            return
        index = e.split(self.row.flat or "row", value.shape)
        simple = isinstance(value, Point) and all(
            id(a) in e.stats or isinstance(a, Constant | Size) for a in (below(a) for a in value.args)
        )
        wanted = e.term if simple else e.value
        if self.schedule == "thread":
            e.line(f"{out}[idx] = {wanted(value, index)};")  # type: ignore[arg-type]
            return
        head = "if (lane == 0)" if self.schedule == "warp" else "if (threadIdx.x == 0)"
        before = len(e.block.lines)
        with e.inside(head, loop=False):
            e.line(f"{out}[row] = {wanted(value, index)};")  # type: ignore[arg-type]
        if len(e.block.lines) == before + 3:
            e.block.lines[before:] = [f"{head} {e.block.lines[before + 1].strip()}"]
