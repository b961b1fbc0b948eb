"""The existing body: how a kernel is written in a hurry, with double math, reloads, serial loops, many barriers."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Literal

from dice_training.cuke.bodies import BodyWriter, Layout, Names
from dice_training.cuke.device import Place, expression, expression_fields, join, loop
from dice_training.cuke.row_ops import Combine, Phase
from dice_training.cuke.spec import Spec, Step

_DOUBLE = re.compile(r"\d\.\d+(?![\df])|\b(?!\w+f\()[a-z]\w*\d*\(|\(double\)")
"""A double literal, or a call of a function without the ``f`` of float."""

_SAME_TYPES = re.compile(r"\b(?:fmax|fmin|max|min)\(")
"""Functions that need arguments of one type."""


@dataclass(frozen=True)
class Habits:
    """How hasty the body is."""

    chain: Literal["var", "ssa", "memory", "nested"]
    double: float
    """Share of steps written in the hasty spelling."""
    early: bool
    serial_map: bool
    real: str
    """Type of the local values."""
    neutral: dict[Combine, str]


def draw_habits(rng: random.Random) -> Habits:
    big = rng.choice(("-1e30f", "-1e20f", "-1e38f", "-3.4e38f", "-INFINITY", "-FLT_MAX"))
    return Habits(
        chain=rng.choice(("var", "var", "ssa", "memory", "nested", "nested")),
        double=rng.choice((0.3, 0.8, 1.0)),
        early=rng.random() < 0.25,
        serial_map=rng.random() < 0.5,
        real="double" if rng.random() < 0.12 else "float",
        neutral={"sum": rng.choice(("0.0f", "0.0f", "0", "0.f")), "max": big, "min": big[1:], "prod": "1.0f"},
    )


class HastyBody(BodyWriter):
    def __init__(self, spec: Spec, names: Names, layout: Layout, rng: random.Random) -> None:
        super().__init__(spec, names, layout)
        self.rng = rng
        self.habits = draw_habits(rng)
        if layout.dynamic_shared:  # its size is given in floats
            self.habits = replace(self.habits, real="float")

    def _step(self, step: Step, value: str, place: Place) -> str:
        op = step.definition
        if self.rng.random() > self.habits.double:
            return expression(step, value, place)
        spellings = [t for t in op.hasty if self.habits.real == "float" or not _SAME_TYPES.search(t)] or [
            op.cuda
        ]
        return self.rng.choice(spellings).format(v=value, **expression_fields(step, place))

    def _nested(self, steps: tuple[Step, ...], start: str, place: Place) -> tuple[list[str], str]:
        """One expression as far as possible, in float throughout."""
        lines: list[str] = []
        value, atom = start, True
        for k, step in enumerate(steps, 1):
            op = step.definition
            floats = [t for t in (op.cuda, *op.hasty) if not _DOUBLE.search(t)]
            template = self.rng.choice(floats or [op.cuda])
            if template.count("{v}") > 1 and not atom:
                name = f"{self.names.v}{k}"
                lines.append(f"float {name} = {value};")
                value, atom = name, True
            value = template.format(v=value if atom else f"({value})", **expression_fields(step, place))
            atom = False
        return lines, value

    def _chain(
        self, steps: tuple[Step, ...], start: str, target: str | None, place: Place
    ) -> tuple[list[str], str]:
        """Statements and the expression of the final value; ``target`` is memory that may hold what is between."""
        v = self.names.v
        if self.habits.chain == "nested" and steps:
            return self._nested(steps, start, place)
        if self.habits.chain == "memory" and target and steps:
            lines, value = [], start
            for step in steps:
                lines.append(f"{target} = {self._step(step, value, place)};")
                value = target
            return lines, ""
        real = self.habits.real
        lines = [f"{real} {v} = {start};"]
        if self.habits.chain == "ssa":
            value = v
            for k, step in enumerate(steps, 1):
                lines.append(f"{real} {v}{k} = {self._step(step, value, place)};")
                value = f"{v}{k}"
            return lines, value
        lines += [f"{v} = {self._step(step, v, place)};" for step in steps]
        return lines, v

    def write(self) -> list[str]:
        return self._row() if self.spec.row else self._pointwise()

    def _pointwise(self) -> list[str]:
        n, unit, early = self.names, self.layout.unit, self.habits.early
        if self.layout.schedule == "grid2d":
            element = self.linear if self.rng.random() < 0.5 else "idx"
            place = self._at(element, n.col)
            lines, value = self._chain(self.spec.before, f"{n.x}[{element}]", f"{n.out}[{element}]", place)
            work = ([f"int idx = {self.linear};"] if element == "idx" else []) + lines
            work += [f"{n.out}[{element}] = {value};"] if value else []
            if early:
                return [*self.heads(), f"if ({n.row} >= {n.rows} || {n.col} >= {n.cols}) return;", *work]
            return [*self.heads(), *loop(f"if ({n.row} < {n.rows} && {n.col} < {n.cols})", work, unit)]
        i = n.i
        lines, value = self._chain(
            self.spec.before, f"{n.x}[{i}]", f"{n.out}[{i}]", self._at(i, self._column())
        )
        work = lines + ([f"{n.out}[{i}] = {value};"] if value else [])
        if self.layout.schedule == "stride":
            head = f"for (int {i} = blockIdx.x * blockDim.x + threadIdx.x; {i} < {n.n}; {i} += blockDim.x * gridDim.x)"
            return loop(head, work, unit)
        if early:
            return [*self.heads(), f"if ({i} >= {n.n}) return;", *work]
        return [*self.heads(), *loop(f"if ({i} < {n.n})", work, unit)]

    def _row(self) -> list[str]:
        n, unit = self.names, self.layout.unit
        schedule = self.layout.schedule
        if schedule == "thread_row":
            work = self._serial()
            if self.habits.early:
                return [*self.heads(), f"if ({n.row} >= {n.rows}) return;", *work]
            return [*self.heads(), *loop(f"if ({n.row} < {n.rows})", work, unit)]
        if schedule in ("block_serial", "warp_row") and (
            schedule == "block_serial" or self.habits.serial_map
        ):
            return self._one_thread()
        return self._tree()

    def _one_thread(self) -> list[str]:
        """Thread 0 works alone; for a map it may only find the statistics, shared with the others."""
        row, n, unit = self.spec.row, self.names, self.layout.unit
        assert row
        if not row.definition.maps or self.habits.serial_map:
            return [*self.heads(), *loop("if (threadIdx.x == 0)", self._serial(), unit)]
        fields = self._fields()
        lines: list[str] = []
        shared: list[str] = []
        for phase in row.definition.phases:
            lines += self._phase(phase, fields, self._over_all()) + self._derived(phase, fields)
            shared.append(fields[phase.stat])
            if phase.hasty_formula:
                shared.append(fields[phase.derived])
        shared = [s for s in shared if re.search(rf"\b{s}\b", row.definition.hasty.format(v="", **fields))]
        lines += [f"shared_{s} = {s};" for s in shared]
        renamed = {k: f"shared_{v}" if v in shared else v for k, v in fields.items()}
        over = f"for (int {n.col} = threadIdx.x; {n.col} < {n.cols}; {n.col} += blockDim.x)"
        return [
            *(f"__shared__ {self.habits.real} shared_{s};" for s in shared),
            *self.heads(),
            *loop("if (threadIdx.x == 0)", lines, unit),
            "__syncthreads();",
            *self._result(renamed, over, ""),
        ]

    def _over_all(self) -> str:
        col = self.names.col
        return f"for (int {col} = 0; {col} < {self.names.cols}; {self.layout.increments.format(i=col)})"

    def _load(self) -> tuple[list[str], str]:
        place = self._at(self.linear, self.names.col)
        if not self.spec.before:
            return [], f"{self.names.x}[{self.linear}]"
        if self.habits.chain == "nested":
            lines, value = self._nested(self.spec.before, f"{self.names.x}[{self.linear}]", place)
            return [*lines, f"float {self.names.v} = {value};"], self.names.v
        return self._chain(self.spec.before, f"{self.names.x}[{self.linear}]", None, place)

    def _phase(self, phase: Phase, fields: dict[str, str], over: str) -> list[str]:
        acc, unit = fields[phase.stat], self.layout.unit
        lines, value = self._load()
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
        return [
            f"{self.habits.real} {acc} = {self.habits.neutral[phase.combine]};",
            *loop(over, [*lines, add], unit),
        ]

    def _derived(self, phase: Phase, fields: dict[str, str]) -> list[str]:
        return (
            [f"{self.habits.real} {fields[phase.derived]} = {phase.hasty_formula.format(**fields)};"]
            if phase.hasty_formula
            else []
        )

    def _result(self, fields: dict[str, str], over: str, guard: str) -> list[str]:
        row, n, unit = self.spec.row, self.names, self.layout.unit
        assert row
        op = row.definition
        if op.maps:
            lines, value = self._load()
            result = op.hasty.format(v=value, **fields)
            target = f"{n.out}[{self.linear}]"
            if not self.spec.after:
                return loop(over, [*lines, f"{target} = {result};"], unit)
            place = self._at(self.linear, n.col)
            more = [
                f"float r = {result};",
                *(f"r = {self._step(s, 'r', place)};" for s in self.spec.after),
            ]
            return loop(over, [*lines, *more, f"{target} = r;"], unit)
        result = op.hasty.format(**fields)
        if not self.spec.after:
            return [f"{guard}{n.out}[{n.row}] = {result};"]
        place = self._at(n.row, "0")
        work = [
            f"float r = {result};",
            *(f"r = {self._step(s, 'r', place)};" for s in self.spec.after),
            f"{n.out}[{n.row}] = r;",
        ]
        return loop(guard.strip(), work, unit) if guard else work

    def _serial(self) -> list[str]:
        fields = self._fields()
        over = self._over_all()
        lines: list[str] = []
        assert self.spec.row
        for phase in self.spec.row.definition.phases:
            lines += self._phase(phase, fields, over) + self._derived(phase, fields)
        return lines + self._result(fields, over, "")

    def _shared(self) -> str:
        if self.layout.dynamic_shared:
            return f"extern __shared__ float {self.names.shared}[];"
        return f"__shared__ {self.habits.real} {self.names.shared}[{self.layout.static_shared}];"

    def _tree(self) -> list[str]:
        n, unit = self.names, self.layout.unit
        fields = self._fields()
        over = self._over_threads()
        lines = [self._shared(), *self.heads(), f"int {n.tid} = threadIdx.x;"]
        assert self.spec.row
        for phase in self.spec.row.definition.phases:
            acc = fields[phase.stat]
            partial = dict(fields) | {phase.stat: f"local_{acc}"}
            lines += self._phase(phase, partial, over)
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
                f"{self.habits.real} {acc} = {n.shared}[0];",
                "__syncthreads();",
                *self._derived(phase, fields),
            ]
        return lines + self._result(fields, over, f"if ({n.tid} == 0) ")
