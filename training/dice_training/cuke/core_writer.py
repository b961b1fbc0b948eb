"""Writes the CUDA source of a module: kernel and host function, in one of a few idiomatic schedules.

The schedule follows from what is computed: pointwise work is one thread an element; a row operator over at most
256 columns is one warp a row, over more one block a row.
"""

from __future__ import annotations

from dice_training.cuke.device import (
    NEUTRAL,
    block_helper,
    chain,
    indent,
    join,
    loop,
    phase_fields,
    scalar_text,
    warp_helper,
    warp_shuffle,
)
from dice_training.cuke.row_ops import Combine, RowOp
from dice_training.cuke.spec import Operand, Spec
from dice_training.cuke.style import CoreStyle

WARP_WIDTH = 256
"""Rows up to this many columns are given to one warp each."""


class CoreWriter:
    def __init__(self, spec: Spec, style: CoreStyle, function: str) -> None:
        self.spec, self.style, self.function = spec, style, function
        self.kernel = f"{function}_kernel"
        self.names = [spec.x] + [o.name for o in spec.operands]
        self.scalars = [s.name for s in spec.scalars if s.name]
        self.out = style.output
        self.per_warp = bool(spec.row) and (spec.width <= WARP_WIDTH or spec.row.definition.special != "")  # type: ignore[union-attr]
        self.vectors = any(o.layout == "vec" for o in spec.operands)
        self.index_type = "int64_t" if spec.row and spec.row.definition.special.startswith("arg") else "float"

    def declaration(self) -> str:
        """The C++ prototype of the host function."""
        args = [f"torch::Tensor {n}" for n in self.names] + [f"float {s}" for s in self.scalars]
        return f"torch::Tensor {self.function}({', '.join(args)})"

    def source(self) -> str:
        """The whole CUDA source, without the quotes of the string it stands in."""
        row = self.spec.row
        blocks = [["#include <torch/extension.h>", "#include <cuda_runtime.h>"]]
        if row and row.definition.special == "":
            combines: list[Combine] = list(dict.fromkeys([p.combine for p in row.definition.phases]))
            helper = warp_helper if self.per_warp else block_helper
            blocks += [helper(c, self.style.indent) for c in combines]
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
        return [head, *indent(body, self.style.indent), "}"]

    def _signature(self, sizes: list[str]) -> str:
        args = [f"const float* __restrict__ {n}" for n in self.names]
        args.append(f"{self.index_type}* __restrict__ {self.out}")
        args += [f"float {s}" for s in self.scalars] + [f"int {s}" for s in sizes]
        return f"__global__ void {self.kernel}({', '.join(args)}) {{"

    def _kernel(self) -> list[str]:
        body = self._row_body() if self.spec.row else self._pointwise_body()
        return [self._signature(self._sizes()), *indent(body, self.style.indent), "}"]

    def _sizes(self) -> list[str]:
        if self.spec.row:
            return ["rows", "cols"] if self.per_warp else ["cols"]
        return ["n", "cols"] if self.vectors else ["n"]

    def _pointwise_body(self) -> list[str]:
        style = self.style
        i, v = style.index, style.value

        def place(operand: Operand) -> str:
            return f"{operand.name}[{i}]" if operand.layout == "full" else f"{operand.name}[{i} % cols]"

        work = [
            f"float {v} = {self.spec.x}[{i}];",
            *chain(self.spec.before, v, place),
            f"{self.out}[{i}] = {v};",
        ]
        head = f"int {i} = blockIdx.x * blockDim.x + threadIdx.x;"
        if style.early_return:
            return [head, f"if ({i} >= n) return;", *work]
        return [head, *loop(f"if ({i} < n)", work, style.indent)]

    def _place(self, operand: Operand) -> str:
        return f"{operand.name}[base + c]" if operand.layout == "full" else f"{operand.name}[c]"

    def _load(self) -> list[str]:
        v = self.style.value
        x = f"{self.spec.x}[base + c]"
        if self.prepared:
            args = [x, *(self._place(o) for o in self._before_operands()), *self._before_scalars()]
            return [f"float {v} = prepare({', '.join(args)});"]
        return [f"float {v} = {x};", *chain(self.spec.before, v, self._place)]

    def _row_body(self) -> list[str]:
        row = self.spec.row
        assert row
        if self.per_warp:
            head = [
                "int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);",
                "int lane = threadIdx.x & 31;",
                "if (row >= rows) return;",
                "size_t base = (size_t)row * cols;",
            ]
        else:
            head = ["int row = blockIdx.x;", "size_t base = (size_t)row * cols;"]
        if row.definition.special == "cumsum":
            return head + self._scan()
        if row.definition.special:
            return head + self._arg(row.definition)
        return head + self._passes(row.definition)

    def _passes(self, op: RowOp) -> list[str]:
        row, v, unit = self.spec.row, self.style.value, self.style.indent
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
            lines.append(f"{acc} = {'warp' if self.per_warp else 'block'}_reduce_{phase.combine}({acc});")
            if phase.derived:
                lines.append(f"float {fields[phase.derived]} = {phase.formula.format(**fields)};")
        if op.maps:
            work = [
                *self._load(),
                f"{v} = {op.result.format(v=v, **fields)};",
                *chain(self.spec.after, v, self._place),
            ]
            return lines + loop(over, [*work, f"{self.out}[base + c] = {v};"], unit)
        first = "lane == 0" if self.per_warp else "threadIdx.x == 0"
        result = op.result.format(**fields)
        if not self.spec.after:
            return [*lines, f"if ({first}) {self.out}[row] = {result};"]
        work = [f"float r = {result};", *chain(self.spec.after, "r", self._place), f"{self.out}[row] = r;"]
        return lines + loop(f"if ({first})", work, unit)

    def _columns(self) -> str:
        if self.per_warp:
            return "for (int c = lane; c < cols; c += 32)"
        return "for (int c = threadIdx.x; c < cols; c += blockDim.x)"

    def _arg(self, op: RowOp) -> list[str]:
        v, unit = self.style.value, self.style.indent
        better = ">" if op.special == "argmax" else "<"
        start = NEUTRAL["max" if op.special == "argmax" else "min"]
        return [
            f"float best = {start};",
            "int where = 0;",
            *loop(
                self._columns(), [*self._load(), f"if ({v} {better} best) {{ best = {v}; where = c; }}"], unit
            ),
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

    def _scan(self) -> list[str]:
        v, unit = self.style.value, self.style.indent
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
        sizes = [f"{x}.size({i})" for i in range(len(self.spec.shape) - 1)]
        if self.spec.row and self.spec.row.keepdim:
            sizes.append("1")
        options = f"{x}.options().dtype(torch::kInt64)" if self.index_type == "int64_t" else f"{x}.options()"
        return f"torch::empty({{{', '.join(sizes)}}}, {options})"

    def _host(self) -> list[str]:
        style, x, spec = self.style, self.spec.x, self.spec
        lines: list[str] = []
        if style.checks:
            lines.append(f'TORCH_CHECK({x}.scalar_type() == torch::kFloat32, "{x} must be float32");')
        if style.contiguous:
            lines.append(f"{x} = {x}.contiguous();")
        lines.append(f"auto {self.out} = {self._output()};")
        if spec.row:
            lines += [f"int cols = {x}.size(-1);", f"int rows = {x}.numel() / cols;"]
        else:
            lines += [f"int n = {x}.numel();"] + ([f"int cols = {x}.size(-1);"] if self.vectors else [])
        threads = style.threads or "256"
        blocks = "rows"
        if not spec.row or self.per_warp:
            work, each = ("rows", 8) if spec.row else ("n", 256)
            count = f"({work} + {each - 1}) / {each}"
            if not spec.row and style.threads:
                count = f"(n + {threads} - 1) / {threads}"
            if style.threads:
                lines += [f"const int {threads} = 256;", f"const int {style.blocks} = {count};"]
                blocks = style.blocks
            else:
                blocks = count
        elif style.threads:
            lines.append(f"const int {threads} = 256;")
        pointers = [f"{n}.data_ptr<float>()" for n in self.names] + [
            f"{self.out}.data_ptr<{self.index_type}>()"
        ]
        lines.append(
            f"{self.kernel}<<<{blocks}, {threads}>>>({', '.join(pointers + self.scalars + self._sizes())});"
        )
        lines.append(f"return {self.out};")
        return [f"{self.declaration()} {{", *indent(lines, style.indent), "}"]


__all__ = ["WARP_WIDTH", "CoreWriter", "scalar_text", "warp_shuffle"]
