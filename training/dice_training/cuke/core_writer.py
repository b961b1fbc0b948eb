"""Writes the CUDA source of a module: kernel and host function, in one of a few idiomatic schedules.

The schedule follows from what is computed: pointwise work is one thread an element; a row operator over at most
256 columns is one warp a row, over more one block a row.
"""

from __future__ import annotations

from typing import Literal

from dice_training.cuke.device import (
    NEUTRAL,
    block_helper,
    chain,
    indent,
    join,
    loop,
    phase_fields,
    read,
    warp_helper,
)
from dice_training.cuke.row_ops import Combine, RowOp
from dice_training.cuke.spec import Operand, Spec

_UNIT = "    "
WARP_WIDTH = 256
"""Rows up to this many columns are given to one warp each."""


class CoreWriter:
    """``scalar``: the type of scalar arguments of the host function."""

    def __init__(self, spec: Spec, function: str, scalar: str = "float") -> None:
        self.scalar_type = scalar
        self.spec, self.function = spec, function
        self.kernel = f"{function}_kernel"
        self.names = [spec.x] + [o.name for o in spec.operands]
        self.scalars = [s.name for s in spec.scalars if s.name]
        self.out = "out"
        self.schedule = self._schedule()
        self.element = "base + (size_t)c * inner" if self.schedule == "strided" else "base + c"
        self.vectors = any(o.layout == "vec" for o in spec.operands)
        self.index_type = "int64_t" if spec.row and spec.row.definition.special.startswith("arg") else "float"

    def _schedule(self) -> Literal["pointwise", "warp", "block", "strided"]:
        row = self.spec.row
        if row is None:
            return "pointwise"
        if self.spec.strided:
            return "strided"
        return "warp" if self.spec.width <= WARP_WIDTH or row.definition.special else "block"

    def declaration(self) -> str:
        """The C++ prototype of the host function."""
        args = [f"torch::Tensor {n}" for n in self.names] + [f"{self.scalar_type} {s}" for s in self.scalars]
        return f"torch::Tensor {self.function}({', '.join(args)})"

    def source(self) -> str:
        """The whole CUDA source, without the quotes of the string it stands in."""
        row = self.spec.row
        blocks = [["#include <torch/extension.h>", "#include <cuda_runtime.h>"]]
        if row and row.definition.special == "" and self.schedule != "strided":
            combines: list[Combine] = list(dict.fromkeys([p.combine for p in row.definition.phases]))
            helper = warp_helper if self.schedule == "warp" else block_helper
            blocks += [helper(c, _UNIT) for c in combines]
        if self.prepared:
            blocks.append(self._prepare())
        blocks.append(self._kernel())
        blocks.append(self._host())
        return "\n" + "\n\n".join("\n".join(b) for b in blocks) + "\n"

    @property
    def prepared(self) -> bool:
        """Whether the chain before the row operator is a device function, because several passes need it."""
        row = self.spec.row
        return bool(row and self.spec.before) and (len(row.definition.phases) > 1 or row.definition.maps)  # type: ignore[union-attr]

    def _before_operands(self) -> list[Operand]:
        return list({o.name: o for step in self.spec.before for o in step.operands}.values())

    def _before_scalars(self) -> list[str]:
        return [s.name for step in self.spec.before for s in step.scalars if s.name]

    def _prepare(self) -> list[str]:
        args = ["v", *(o.name for o in self._before_operands()), *self._before_scalars()]
        body = [*chain(self.spec.before, "v", lambda o: o.name), "return v;"]
        head = f"__device__ __forceinline__ float prepare({', '.join('float ' + a for a in args)}) {{"
        return [head, *indent(body, _UNIT), "}"]

    def _signature(self, sizes: list[str]) -> str:
        args = [f"const float* __restrict__ {n}" for n in self.names]
        args.append(f"{self.index_type}* __restrict__ {self.out}")
        args += [f"float {s}" for s in self.scalars] + [f"int {s}" for s in sizes]
        return f"__global__ void {self.kernel}({', '.join(args)}) {{"

    def _kernel(self) -> list[str]:
        body = self._row_body() if self.spec.row else self._pointwise_body()
        return [self._signature(self._sizes()), *indent(body, _UNIT), "}"]

    def _sizes(self) -> list[str]:
        sizes = {
            "pointwise": ["n", "cols"],
            "warp": ["rows", "cols"],
            "block": ["cols"],
            "strided": ["n", "cols", "inner"],
        }
        return ["n"] if self.schedule == "pointwise" and not self.vectors else sizes[self.schedule]

    def _pointwise_body(self) -> list[str]:
        i, v = "idx", "v"

        def place(operand: Operand) -> str:
            return read(operand.name, operand, i, f"{i} % cols")

        work = [
            f"float {v} = {self.spec.x}[{i}];",
            *chain(self.spec.before, v, place),
            f"{self.out}[{i}] = {v};",
        ]
        head = f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;"
        return [head, *loop(f"if ({i} < n)", work, _UNIT)]

    def _place(self, operand: Operand) -> str:
        return read(operand.name, operand, self.element, "c")

    def _load(self) -> list[str]:
        v = "v"
        x = f"{self.spec.x}[{self.element}]"
        if self.prepared:
            args = [x, *(self._place(o) for o in self._before_operands()), *self._before_scalars()]
            return [f"float {v} = prepare({', '.join(args)});"]
        return [f"float {v} = {x};", *chain(self.spec.before, v, self._place)]

    def _row_body(self) -> list[str]:
        row = self.spec.row
        assert row
        head = ["int row = blockIdx.x;", "size_t base = (size_t)row * cols;"]
        if self.schedule == "strided":
            head = [
                "int idx = blockIdx.x * blockDim.x + threadIdx.x;",
                "if (idx >= n) return;",
                "size_t base = (size_t)(idx / inner) * cols * inner + idx % inner;",
            ]
        elif self.schedule == "warp":
            head = [
                "int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);",
                "int lane = threadIdx.x & 31;",
                "if (row >= rows) return;",
                "size_t base = (size_t)row * cols;",
            ]
        if row.definition.special == "cumsum":
            return head + (self._serial_scan() if self.schedule == "strided" else self._scan())
        if row.definition.special:
            return head + self._arg(row.definition)
        return head + self._passes(row.definition)

    def _passes(self, op: RowOp) -> list[str]:
        row, v, unit = self.spec.row, "v", _UNIT
        assert row
        fields = phase_fields(op.phases, "cols", row.eps)
        fields |= dict(zip("wc", (f"{o.name}[c]" for o in row.affine), strict=False))
        over = self._columns()
        lines: list[str] = []
        for phase in op.phases:
            term = phase.term.format(v=v, **fields)
            acc = fields[phase.stat]
            lines.append(f"float {acc} = {NEUTRAL[phase.combine]};")
            lines += loop(over, [*self._load(), join(phase.combine, acc, term)], unit)
            if self.schedule != "strided":
                lines.append(f"{acc} = {self.schedule}_reduce_{phase.combine}({acc});")
            if phase.derived:
                lines.append(f"float {fields[phase.derived]} = {phase.formula.format(**fields)};")
        if op.maps:
            work = [
                *self._load(),
                f"{v} = {op.result.format(v=v, **fields)};",
                *chain(self.spec.after, v, self._place),
            ]
            return lines + loop(over, [*work, f"{self.out}[{self.element}] = {v};"], unit)
        result = op.result.format(**fields)
        work = [f"float r = {result};", *chain(self.spec.after, "r", self._place)]
        if self.schedule == "strided":
            return lines + (
                [*work, f"{self.out}[idx] = r;"] if self.spec.after else [f"{self.out}[idx] = {result};"]
            )
        first = "lane == 0" if self.schedule == "warp" else "threadIdx.x == 0"
        if not self.spec.after:
            return [*lines, f"if ({first}) {self.out}[row] = {result};"]
        return lines + loop(f"if ({first})", [*work, f"{self.out}[row] = r;"], unit)

    def _columns(self) -> str:
        if self.schedule == "strided":
            return "for (int c = 0; c < cols; ++c)"
        if self.schedule == "warp":
            return "for (int c = lane; c < cols; c += 32)"
        return "for (int c = threadIdx.x; c < cols; c += blockDim.x)"

    def _arg(self, op: RowOp) -> list[str]:
        v, unit = "v", _UNIT
        better = ">" if op.special == "argmax" else "<"
        start = NEUTRAL["max" if op.special == "argmax" else "min"]
        take = f"if ({v} {better} best) {{ best = {v}; where = c; }}"
        search = [
            f"float best = {start};",
            "int where = 0;",
            *loop(self._columns(), [*self._load(), take], unit),
        ]
        if self.schedule == "strided":
            return [*search, f"{self.out}[idx] = where;"]
        return [
            *search,
            *loop(
                "for (int o = 16; o > 0; o >>= 1)",
                [
                    "float other_best = __shfl_xor_sync(0xffffffff, best, o);",
                    "int other_where = __shfl_xor_sync(0xffffffff, where, o);",
                    *loop(
                        f"if (other_best {better} best || (other_best == best && other_where < where))",
                        ["best = other_best;", "where = other_where;"],
                        unit,
                    ),
                ],
                unit,
            ),
            f"if (lane == 0) {self.out}[row] = where;",
        ]

    def _serial_scan(self) -> list[str]:
        v = "v"
        work = [*self._load(), f"total += {v};", f"{self.out}[{self.element}] = total;"]
        return ["float total = 0.0f;", *loop(self._columns(), work, _UNIT)]

    def _scan(self) -> list[str]:
        v, unit = "v", _UNIT
        load = self._load()
        load[0] = load[0].replace("float ", "", 1)
        return [
            "float carry = 0.0f;",
            *loop(
                "for (int start = 0; start < cols; start += 32)",
                [
                    "int c = start + lane;",
                    f"float {v} = 0.0f;",
                    *loop("if (c < cols)", load, unit),
                    *loop(
                        "for (int o = 1; o < 32; o <<= 1)",
                        [f"float left = __shfl_up_sync(0xffffffff, {v}, o);", f"if (lane >= o) {v} += left;"],
                        unit,
                    ),
                    f"{v} += carry;",
                    f"if (c < cols) {self.out}[base + c] = {v};",
                    f"carry = __shfl_sync(0xffffffff, {v}, 31);",
                ],
                unit,
            ),
        ]

    def _output(self) -> str:
        x = self.spec.x
        if not self.spec.reduces:
            return f"torch::empty_like({x})"
        keep = bool(self.spec.row and self.spec.row.keepdim)
        sizes = [f"{x}.size({i})" if i != self.spec.axis else "1" for i in range(len(self.spec.shape))]
        if not keep:
            del sizes[self.spec.axis]
        options = f"{x}.options().dtype(torch::kInt64)" if self.index_type == "int64_t" else f"{x}.options()"
        return f"torch::empty({{{', '.join(sizes)}}}, {options})"

    def _size_lines(self) -> list[str]:
        x, rank = self.spec.x, len(self.spec.shape)
        if self.schedule == "strided":
            inner = " * ".join(f"{x}.size({i})" for i in range(self.spec.axis + 1, rank))
            return [
                f"int cols = {x}.size({self.spec.axis});",
                f"int inner = {inner};",
                f"int n = {x}.numel() / cols;",
            ]
        if self.spec.row:
            return [f"int cols = {x}.size(-1);", f"int rows = {x}.numel() / cols;"]
        return [f"int n = {x}.numel();"] + ([f"int cols = {x}.size(-1);"] if self.vectors else [])

    def _launch_lines(self) -> list[str]:
        lines = ["const int threads = 256;"]
        return lines if self.schedule == "block" else [*lines, f"const int blocks = {self._count()};"]

    def _count(self) -> str:
        return "(rows + 7) / 8" if self.schedule == "warp" else "(n + threads - 1) / threads"

    def _grid(self) -> str:
        return "rows" if self.schedule == "block" else "blocks"

    def _host(self) -> list[str]:
        lines: list[str] = []
        lines.append(f"auto {self.out} = {self._output()};")
        lines += self._size_lines()
        lines += self._launch_lines()
        pointers = [f"{n}.data_ptr<float>()" for n in self.names] + [
            f"{self.out}.data_ptr<{self.index_type}>()"
        ]
        arguments = ", ".join(pointers + self.scalars + self._sizes())
        lines.append(f"{self.kernel}<<<{self._grid()}, threads>>>({arguments});")
        lines.append(f"return {self.out};")
        return [f"{self.declaration()} {{", *indent(lines, _UNIT), "}"]
