"""Kernel bodies in pairs: how it was written in a hurry, and a better one for the same signature and launch."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from dice_training.cuke.device import (
    NEUTRAL,
    chain,
    expression,
    join,
    literal,
    loop,
    phase_fields,
    scalar_text,
    warp_shuffle,
)
from dice_training.cuke.row_ops import Combine, Phase
from dice_training.cuke.spec import Operand, Spec, Step

Schedule = Literal["guard", "stride", "grid2d", "thread_row", "block_serial", "block_tree", "warp_row"]


@dataclass(frozen=True)
class Names:
    """What the file's author calls things; shared by both bodies."""

    x: str
    out: str
    n: str
    rows: str
    cols: str
    i: str
    row: str
    col: str
    tid: str
    v: str
    shared: str
    stats: dict[str, str]
    pointers: dict[str, str]
    """Operand name in the specification -> parameter name."""


@dataclass(frozen=True)
class Layout:
    """Launch facts that both bodies rely on."""

    schedule: Schedule
    dynamic_shared: bool = False
    static_shared: str = "256"
    int_index: str = "int"
    unit: str = "    "
    increments: str = "++{i}"


@dataclass
class Habits:
    """How hasty the existing body is."""

    chain: Literal["var", "ssa", "memory"]
    double: float
    early: bool
    serial_map: bool
    neutral: dict[Combine, str] = field(default_factory=dict)


def draw_habits(rng: random.Random) -> Habits:
    big = rng.choice(("-1e30f", "-1e20f", "-1e38f", "-3.4e38f"))
    return Habits(
        chain=rng.choice(("var", "var", "ssa", "memory")),
        double=rng.choice((0.3, 0.8, 1.0)),
        early=rng.random() < 0.25,
        serial_map=rng.random() < 0.4,
        neutral={"sum": rng.choice(("0.0f", "0.0f", "0", "0.f")), "max": big, "min": big[1:], "prod": "1.0f"},
    )


class BodyWriter:
    def __init__(self, spec: Spec, names: Names, layout: Layout, rng: random.Random) -> None:
        self.spec, self.names, self.layout, self.rng = spec, names, layout, rng
        self.habits = draw_habits(rng)
        self.linear = f"{names.row} * {names.cols} + {names.col}"

    # Reading operands

    def _at(self, element: str, column: str):
        def place(operand: Operand) -> str:
            pointer = self.names.pointers[operand.name]
            return f"{pointer}[{element}]" if operand.layout == "full" else f"{pointer}[{column}]"

        return place

    def _column(self) -> str:
        return (
            self.names.col
            if self.spec.row or self.layout.schedule == "grid2d"
            else f"{self.names.i} % {self.names.cols}"
        )

    # The existing body

    def _hasty_step(self, step: Step, value: str, place) -> str:
        op = step.definition
        if self.rng.random() > self.habits.double:
            return expression(step, value, place)
        fields = {k: scalar_text(s) for k, s in zip("ab", step.scalars, strict=False)}
        fields |= {k: place(o) for k, o in zip("yz", step.operands, strict=False)}
        return self.rng.choice(op.hasty).format(v=value, **fields)

    def _hasty_chain(
        self, steps: tuple[Step, ...], start: str, target: str | None, place
    ) -> tuple[list[str], str]:
        """Statements and the expression of the final value; ``target`` is memory that may hold what is between."""
        v = self.names.v
        if self.habits.chain == "memory" and target and steps:
            lines, value = [], start
            for step in steps:
                lines.append(f"{target} = {self._hasty_step(step, value, place)};")
                value = target
            return lines, ""
        lines = [f"float {v} = {start};"]
        if self.habits.chain == "ssa":
            value = v
            for k, step in enumerate(steps, 1):
                lines.append(f"float {v}{k} = {self._hasty_step(step, value, place)};")
                value = f"{v}{k}"
            return lines, value
        lines += [f"{v} = {self._hasty_step(step, v, place)};" for step in steps]
        return lines, v

    def hasty(self) -> list[str]:
        return self._hasty_row() if self.spec.row else self._hasty_pointwise()

    def _hasty_pointwise(self) -> list[str]:
        n, unit, early = self.names, self.layout.unit, self.habits.early
        if self.layout.schedule == "grid2d":
            element = self.linear if self.rng.random() < 0.5 else "idx"
            place = self._at(element, n.col)
            lines, value = self._hasty_chain(
                self.spec.before, f"{n.x}[{element}]", f"{n.out}[{element}]", place
            )
            work = ([f"int idx = {self.linear};"] if element == "idx" else []) + lines
            work += [f"{n.out}[{element}] = {value};"] if value else []
            if early:
                return [*self.heads(), f"if ({n.row} >= {n.rows} || {n.col} >= {n.cols}) return;", *work]
            return [*self.heads(), *loop(f"if ({n.row} < {n.rows} && {n.col} < {n.cols})", work, unit)]
        i = n.i
        lines, value = self._hasty_chain(
            self.spec.before, f"{n.x}[{i}]", f"{n.out}[{i}]", self._at(i, self._column())
        )
        work = lines + ([f"{n.out}[{i}] = {value};"] if value else [])
        if self.layout.schedule == "stride":
            head = f"for (int {i} = blockIdx.x * blockDim.x + threadIdx.x; {i} < {n.n}; {i} += blockDim.x * gridDim.x)"
            return loop(head, work, unit)
        if early:
            return [*self.heads(), f"if ({i} >= {n.n}) return;", *work]
        return [*self.heads(), *loop(f"if ({i} < {n.n})", work, unit)]

    def heads(self) -> list[str]:
        n = self.names
        return {
            "guard": [f"int {n.i} = blockIdx.x * blockDim.x + threadIdx.x;"],
            "stride": [f"int {n.i} = blockIdx.x * blockDim.x + threadIdx.x;"],
            "grid2d": [
                f"int {n.col} = blockIdx.x * blockDim.x + threadIdx.x;",
                f"int {n.row} = blockIdx.y * blockDim.y + threadIdx.y;",
            ],
            "thread_row": [f"int {n.row} = blockIdx.x * blockDim.x + threadIdx.x;"],
        }.get(self.layout.schedule, [f"int {n.row} = blockIdx.x;"])

    def _hasty_row(self) -> list[str]:
        n, unit = self.names, self.layout.unit
        schedule = self.layout.schedule
        if schedule == "thread_row":
            work = self._hasty_serial()
            if self.habits.early:
                return [*self.heads(), f"if ({n.row} >= {n.rows}) return;", *work]
            return [*self.heads(), *loop(f"if ({n.row} < {n.rows})", work, unit)]
        if schedule in ("block_serial", "warp_row") and (
            schedule == "block_serial" or self.habits.serial_map
        ):
            return [*self.heads(), *loop("if (threadIdx.x == 0)", self._hasty_serial(), unit)]
        return self._hasty_tree()

    def _fields(self) -> dict[str, str]:
        row = self.spec.row
        assert row
        fields = phase_fields(row.definition.phases, self.names.cols, row.eps, self.names.stats)
        return fields | dict(
            zip("wc", (f"{self.names.pointers[o.name]}[{self.names.col}]" for o in row.affine), strict=False)
        )

    def _hasty_load(self) -> tuple[list[str], str]:
        place = self._at(self.linear, self.names.col)
        if not self.spec.before:
            return [], f"{self.names.x}[{self.linear}]"
        return self._hasty_chain(self.spec.before, f"{self.names.x}[{self.linear}]", None, place)

    def _hasty_phase(self, phase: Phase, fields: dict[str, str], over: str) -> list[str]:
        acc, unit = fields[phase.stat], self.layout.unit
        lines, value = self._hasty_load()
        term = (phase.hasty if self.rng.random() < self.habits.double else phase.term).format(
            v=value, **fields
        )
        if phase.combine in ("max", "min"):
            sign = ">" if phase.combine == "max" else "<"
            add = (
                f"if ({term} {sign} {acc}) {acc} = {term};"
                if self.rng.random() < 0.6
                else join(phase.combine, acc, term)
            )
        else:
            add = (
                join(phase.combine, acc, term)
                if self.rng.random() < 0.7 or phase.combine == "prod"
                else f"{acc} = {acc} + {term};"
            )
        return [f"float {acc} = {self.habits.neutral[phase.combine]};", *loop(over, [*lines, add], unit)]

    def _derived(self, phase: Phase, fields: dict[str, str]) -> list[str]:
        return (
            [f"float {fields[phase.derived]} = {phase.hasty_formula.format(**fields)};"]
            if phase.hasty_formula
            else []
        )

    def _hasty_result(self, fields: dict[str, str], over: str, guard: str) -> list[str]:
        row, n, unit = self.spec.row, self.names, self.layout.unit
        assert row
        op = row.definition
        if op.maps:
            lines, value = self._hasty_load()
            result = op.hasty.format(v=value, **fields)
            target = f"{n.out}[{self.linear}]"
            if not self.spec.after:
                return loop(over, [*lines, f"{target} = {result};"], unit)
            place = self._at(self.linear, n.col)
            more = [
                f"float r = {result};",
                *(f"r = {self._hasty_step(s, 'r', place)};" for s in self.spec.after),
            ]
            return loop(over, [*lines, *more, f"{target} = r;"], unit)
        result = op.hasty.format(**fields)
        if not self.spec.after:
            return [f"{guard}{n.out}[{n.row}] = {result};"]
        place = self._at(n.row, "0")
        work = [
            f"float r = {result};",
            *(f"r = {self._hasty_step(s, 'r', place)};" for s in self.spec.after),
            f"{n.out}[{n.row}] = r;",
        ]
        return loop(guard.strip(), work, unit) if guard else work

    def _hasty_serial(self) -> list[str]:
        fields = self._fields()
        col = self.names.col
        over = f"for (int {col} = 0; {col} < {self.names.cols}; {self.layout.increments.format(i=col)})"
        lines: list[str] = []
        assert self.spec.row
        for phase in self.spec.row.definition.phases:
            lines += self._hasty_phase(phase, fields, over) + self._derived(phase, fields)
        return lines + self._hasty_result(fields, over, "")

    def _over_threads(self) -> str:
        n = self.names
        step = "32" if self.layout.schedule == "warp_row" else "blockDim.x"
        return f"for (int {n.col} = {n.tid}; {n.col} < {n.cols}; {n.col} += {step})"

    def _shared(self) -> str:
        if self.layout.dynamic_shared:
            return f"extern __shared__ float {self.names.shared}[];"
        return f"__shared__ float {self.names.shared}[{self.layout.static_shared}];"

    def _hasty_tree(self) -> list[str]:
        n, unit = self.names, self.layout.unit
        fields = self._fields()
        over = self._over_threads()
        lines = [self._shared(), *self.heads(), f"int {n.tid} = threadIdx.x;"]
        assert self.spec.row
        for phase in self.spec.row.definition.phases:
            acc = fields[phase.stat]
            partial = dict(fields) | {phase.stat: f"local_{acc}"}
            lines += self._hasty_phase(phase, partial, over)
            here, there = f"{n.shared}[{n.tid}]", f"{n.shared}[{n.tid} + s]"
            lines += [
                f"{here} = local_{acc};",
                "__syncthreads();",
                *loop(
                    "for (int s = blockDim.x / 2; s > 0; s >>= 1)",
                    [
                        *loop(f"if ({n.tid} < s)", [join(phase.combine, here, there)], unit),
                        "__syncthreads();",
                    ],
                    unit,
                ),
                f"float {acc} = {n.shared}[0];",
                "__syncthreads();",
                *self._derived(phase, fields),
            ]
        return lines + self._hasty_result(fields, over, f"if ({n.tid} == 0) ")

    # The better body

    def better(self) -> list[str]:
        return self._better_row() if self.spec.row else self._better_pointwise()

    def _better_pointwise(self) -> list[str]:
        n, unit = self.names, self.layout.unit
        v, i = n.v, n.i
        if self.layout.schedule == "grid2d":
            place = self._at("idx", n.col)
            work = [f"float {v} = {n.x}[idx];", *chain(self.spec.before, v, place), f"{n.out}[idx] = {v};"]
            return [
                *self.heads(),
                f"if ({n.row} >= {n.rows} || {n.col} >= {n.cols}) return;",
                f"int idx = {self.linear};",
                *work,
            ]
        if self.layout.schedule == "guard":
            place = self._at(i, self._column())
            work = [f"float {v} = {n.x}[{i}];", *chain(self.spec.before, v, place), f"{n.out}[{i}] = {v};"]
            return [*self.heads(), f"if ({i} >= {n.n}) return;", *work]
        place = self._at("k", f"k % {n.cols}")
        apply = loop(
            "auto apply = [&](int k)",
            [f"float {v} = {n.x}[k];", *chain(self.spec.before, v, place), f"return {v};"],
            unit,
        )
        apply[-1] += ";"
        four = [f"float r{k} = apply({i}{self._jump(k)});" for k in range(4)]
        four += [f"{n.out}[{i}{self._jump(k)}] = r{k};" for k in range(4)]
        return [
            *apply,
            "int stride = blockDim.x * gridDim.x;",
            *self.heads(),
            *loop(f"for (; {i} + 3 * stride < {n.n}; {i} += 4 * stride)", four, unit),
            f"for (; {i} < {n.n}; {i} += stride) {n.out}[{i}] = apply({i});",
        ]

    @staticmethod
    def _jump(k: int) -> str:
        return ("", " + stride", " + 2 * stride", " + 3 * stride")[k]

    def _better_row(self) -> list[str]:
        row, n, unit = self.spec.row, self.names, self.layout.unit
        assert row
        op, fields, schedule = row.definition, self._fields(), self.layout.schedule
        alone = schedule == "thread_row"
        warp = schedule == "warp_row"
        place = self._at(f"base + {n.col}", n.col)
        lines = self.heads()
        if alone:
            lines.append(f"if ({n.row} >= {n.rows}) return;")
            over = f"for (int {n.col} = 0; {n.col} < {n.cols}; ++{n.col})"
        else:
            lines.append(f"int {n.tid} = threadIdx.x;")
            over = self._over_threads()
        lines.append(f"size_t base = (size_t){n.row} * {n.cols};")
        if not alone and not warp:
            lines.insert(0, self._better_shared())
            combines: list[Combine] = list(dict.fromkeys([p.combine for p in op.phases]))
            for combine in combines:
                lines += self._block_lambda(combine)
        load = [f"float {n.v} = {n.x}[base + {n.col}];", *chain(self.spec.before, n.v, place)]
        if self.spec.before and (len(op.phases) > 1 or op.maps):
            lines += [*loop(f"auto load = [&](int {n.col})", [*load, f"return {n.v};"], unit)]
            lines[-1] += ";"
            load = [f"float {n.v} = load({n.col});"]
        online = alone and [p.combine for p in op.phases] == ["max", "sum"]
        if online:
            peak, total = fields["peak"], fields["total"]
            lines += [f"float {peak} = {NEUTRAL['max']};", f"float {total} = 0.0f;"]
            lines += loop(
                over,
                [
                    *load,
                    f"float up = fmaxf({peak}, {n.v});",
                    f"{total} = {total} * expf({peak} - up) + expf({n.v} - up);",
                    f"{peak} = up;",
                ],
                unit,
            )
        for phase in op.phases:
            acc = fields[phase.stat]
            if not online:
                term = phase.term.format(v=n.v, **fields)
                lines += [
                    f"float {acc} = {NEUTRAL[phase.combine]};",
                    *loop(over, [*load, join(phase.combine, acc, term)], unit),
                ]
            if warp:
                lines += warp_shuffle(phase.combine, acc, unit)
            elif not alone:
                lines.append(f"{acc} = block_{phase.combine}({acc});")
            if phase.derived:
                lines.append(f"float {fields[phase.derived]} = {phase.formula.format(**fields)};")
        if op.maps:
            work = [
                *load,
                f"{n.v} = {op.result.format(v=n.v, **fields)};",
                *chain(self.spec.after, n.v, place),
            ]
            return lines + loop(over, [*work, f"{n.out}[base + {n.col}] = {n.v};"], unit)
        result = op.result.format(**fields)
        guard = "" if alone else f"if ({n.tid} == 0) "
        if not self.spec.after:
            return [*lines, f"{guard}{n.out}[{n.row}] = {result};"]
        work = [f"float r = {result};", *chain(self.spec.after, "r", place), f"{n.out}[{n.row}] = r;"]
        return lines + (loop(guard.strip(), work, unit) if guard else work)

    def _better_shared(self) -> str:
        if self.layout.schedule == "block_tree" and self.layout.dynamic_shared:
            return f"extern __shared__ float {self.names.shared}[];"
        return f"__shared__ float {self.names.shared}[32];"

    def _block_lambda(self, combine: Combine) -> list[str]:
        t, s, unit = self.names.tid, self.names.shared, self.layout.unit
        lines = loop(
            f"auto block_{combine} = [&](float a)",
            [
                *warp_shuffle(combine, "a", unit),
                f"if (({t} & 31) == 0) {s}[{t} >> 5] = a;",
                "__syncthreads();",
                f"a = ({t} & 31) < (blockDim.x >> 5) ? {s}[{t} & 31] : {NEUTRAL[combine]};",
                *warp_shuffle(combine, "a", unit),
                "__syncthreads();",
                "return a;",
            ],
            unit,
        )
        lines[-1] += ";"
        return lines


__all__ = ["BodyWriter", "Habits", "Layout", "Names", "Schedule", "literal"]
