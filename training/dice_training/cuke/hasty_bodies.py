"""The existing body: how a kernel is written in a hurry, with double math, reloads, serial loops, many barriers."""

from __future__ import annotations

import re
from typing import Any

from dice_training.cuke.comments import commented
from dice_training.cuke.device import Place, join, loop
from dice_training.cuke.hasty_parts import HastyParts
from dice_training.cuke.row_ops import Phase


class HastyBody(HastyParts):
    def write(self) -> list[str]:
        lines = self._row() if self.spec.row else self._pointwise()
        return commented(lines, self.rng, self.habits.comments) if self.habits.comments else lines

    def _guarded(self, heads: list[str], inside: str, outside: str, work: list[str]) -> list[str]:
        if self.habits.early == "return":
            return [*heads, f"if ({outside}) return;", *work]
        if self.habits.early == "braces":
            return [*heads, *loop(f"if ({outside})", ["return;"], self.layout.unit), *work]
        return [*heads, *self._block(f"if ({inside})", work)]

    def _pointwise(self) -> list[str]:
        n, unit = self.names, self.layout.unit
        if self.layout.schedule == "grid2d":
            idx = self.rng.choice(("idx", n.i)) if self.rng.random() < 0.5 else ""
            element = idx or self.linear
            place = self._at(element, n.col)
            lines, value = self._chain(self.spec.before, f"{n.x}[{element}]", f"{n.out}[{element}]", place)
            work = ([f"int {idx} = {self.linear};"] if idx else []) + lines
            work += [f"{n.out}[{element}] = {value};"] if value else []
            return self._guarded(
                self.heads(),
                f"{n.row} < {n.rows} && {n.col} < {n.cols}",
                f"{n.row} >= {n.rows} || {n.col} >= {n.cols}",
                work,
            )
        i = n.i
        lines, value = self._chain(
            self.spec.before, f"{n.x}[{i}]", f"{n.out}[{i}]", self._at(i, self._column())
        )
        work = lines + ([f"{n.out}[{i}] = {value};"] if value else [])
        if self.layout.schedule == "stride":
            h = self.habits
            kind = h.index.removeprefix("const ")
            if h.loop == "while":
                return [
                    f"{kind} {i} = {h.at()};",
                    *loop(f"while ({i} < {n.n})", [*work, f"{i} += {h.stride};"], unit),
                ]
            return self._block(f"for ({kind} {i} = {h.at()}; {i} < {n.n}; {i} += {h.stride})", work)
        outside = f"{i} >= {n.n}" if self.rng.random() < 0.85 else f"{n.n} <= {i}"
        return self._guarded(self.heads(), f"{i} < {n.n}", outside, work)

    def _row(self) -> list[str]:
        n = self.names
        schedule = self.layout.schedule
        if schedule == "thread_row":
            work = [*self._row_pointers(), *self._serial()]
            return self._guarded(self.heads(), f"{n.row} < {n.rows}", f"{n.row} >= {n.rows}", work)
        if schedule == "block_serial" or (schedule == "warp_row" and self.habits.serial_map):
            return self._one_thread()
        return self._tree()

    def _one_thread(self) -> list[str]:
        """Thread 0 works alone; for a map it may only find the statistics, shared with the others."""
        row, unit = self.spec.row, self.layout.unit
        assert row
        head = "if (threadIdx.x == 0)"
        if not row.definition.maps or self.habits.serial_map:
            if self.habits.early:
                return [
                    *self.heads(),
                    "if (threadIdx.x != 0) return;",
                    *self._row_pointers(),
                    *self._serial(),
                ]
            return [*self.heads(), *loop(head, [*self._row_pointers(), *self._serial()], unit)]
        fields = self._fields()
        lines: list[str] = []
        shared: list[str] = []
        for phase in row.definition.phases:
            lines += self._phase(phase, fields, self._over_all) + self._derived(phase, fields)
            shared.append(fields[phase.stat])
            if phase.hasty_formula:
                shared.append(fields[phase.derived])
        shared = [s for s in shared if re.search(rf"\b{s}\b", row.definition.hasty.format(v="", **fields))]
        mark = self.rng.choice(("shared_", "s_", "sh_"))
        lines += [f"{mark}{s} = {s};" for s in shared]
        table = {k: f"{mark}{v}" if v in shared else v for k, v in fields.items()}
        n = self.names

        def over(body: list[str]) -> list[str]:
            return self._over("threadIdx.x", n.cols, f"{n.col} += {self.size}", body, n.col)

        return [
            *(f"__shared__ {self.habits.sums} {mark}{s};" for s in shared),
            *self.heads(),
            *self._row_pointers(),
            *loop(head, lines, unit),
            "__syncthreads();",
            *self._result(table, over, ""),
        ]

    def _load(self) -> tuple[list[str], str]:
        place = self._at(self.linear, self.names.col)
        if not self.spec.before:
            return [], self.x
        if self.habits.chain == "nested":
            lines, value = self._nested(self.spec.before, self.x, place)
            return [*lines, f"float {self.names.v} = {value};"], self.names.v
        return self._chain(self.spec.before, self.x, None, place)

    def _phase(self, phase: Phase, fields: dict[str, str], over: Any) -> list[str]:
        acc = fields[phase.stat]
        lines, value = self._load()
        hasty = self.rng.random() < self.habits.double
        term = (phase.hasty if hasty else phase.term).format(v=value, **fields)
        if phase.combine in ("max", "min"):
            sign = ">" if phase.combine == "max" else "<"
            add = [join(phase.combine, acc, term)]
            if self.rng.random() < 0.6:
                add = self._block(f"if ({term} {sign} {acc})", [f"{acc} = {term};"])
        elif self.rng.random() < 0.7 or phase.combine == "prod":
            add = [join(phase.combine, acc, term)]
        else:
            add = [f"{acc} = {acc} + {term};"]
        return [
            f"{self.habits.sums} {acc} = {self.habits.neutral[phase.combine]};",
            *over([*lines, *add]),
        ]

    def _derived(self, phase: Phase, fields: dict[str, str]) -> list[str]:
        if not phase.hasty_formula:
            return []
        return [f"{self.habits.sums} {fields[phase.derived]} = {phase.hasty_formula.format(**fields)};"]

    def _result(self, fields: dict[str, str], over: Any, guard: str) -> list[str]:
        row, n = self.spec.row, self.names
        assert row
        op = row.definition
        used = {
            *n.pointers.values(),
            *n.stats.values(),
            n.x,
            n.out,
            n.cols,
            n.rows,
            n.row,
            n.col,
            n.tid,
            n.v,
            n.shared,
        }
        name = next(c for c in (*self.rng.sample(("r", "res", "y", "ans"), 4), "r_", "res_") if c not in used)
        if op.maps:
            lines, value = self._load()
            result = op.hasty.format(v=value, **fields)
            if not self.spec.after:
                return over([*lines, f"{self.target} = {result};"])
            more = self._after(name, result, self._at(self.linear, n.col))
            return over([*lines, *more, f"{self.target} = {name};"])
        result = op.hasty.format(**fields)
        target = f"{n.out}[{self.row}]"
        if not self.spec.after:
            return self._block(guard, [f"{target} = {result};"]) if guard else [f"{target} = {result};"]
        work = [*self._after(name, result, self._at(self.row, "0")), f"{target} = {name};"]
        return loop(guard, work, self.layout.unit) if guard else work

    def _after(self, name: str, start: str, place: Place) -> list[str]:
        mixed, self.mixed = self.mixed, self.mixed and self.habits.real == "float"
        lines = [
            f"float {name} = {start};",
            *(self._assign(name, self._step(s, name, place)) for s in self.spec.after),
        ]
        self.mixed = mixed
        return lines

    def _serial(self) -> list[str]:
        fields = self._fields()
        lines: list[str] = []
        assert self.spec.row
        for phase in self.spec.row.definition.phases:
            lines += self._phase(phase, fields, self._over_all) + self._derived(phase, fields)
        return lines + self._result(fields, self._over_all, "")

    def _shared(self) -> str:
        if self.layout.dynamic_shared:
            return f"extern __shared__ float {self.names.shared}[];"
        return f"__shared__ {self.habits.sums} {self.names.shared}[{self.layout.static_shared}];"

    def _combined(self, phase: Phase, own: str) -> list[str]:
        """The block's result of every thread's ``own`` part, in the first element of shared memory."""
        n, h, unit, t = self.names, self.habits, self.layout.unit, self.tid
        s, shared = h.half, n.shared
        barrier = "__syncthreads();"
        if h.reduction == "shuffle":
            halved = h.halving.format(s=s)
            one = join(phase.combine, own, f"__shfl_down_sync(0xffffffff, {own}, {s})")
            pick = f"{shared}[{t} / 32] = {own};"
            gather = join(phase.combine, f"{shared}[0]", f"{shared}[{s}]")
            return [
                *self._block(f"for (int {s} = 16; {s} > 0; {halved})", [one]),
                *self._block(f"if ({t} % 32 == 0)", [pick]),
                barrier,
                *loop(
                    f"if ({t} == 0)",
                    self._block(f"for (int {s} = 1; {s} < {self.size} / 32; {h.step.format(i=s)})", [gather]),
                    unit,
                ),
                barrier,
            ]
        store = [f"{shared}[{t}] = {own};", barrier]
        if h.reduction == "serial":
            gather = join(phase.combine, f"{shared}[0]", f"{shared}[{s}]")
            each = self._block(f"for (int {s} = 1; {s} < {self.size}; {h.step.format(i=s)})", [gather])
            return [*store, *loop(f"if ({t} == 0)", each, unit), barrier]
        add = [join(phase.combine, f"{shared}[{t}]", f"{shared}[{t} + {s}]")]
        if h.reduction == "interleaved":
            head = f"for (int {s} = 1; {s} < {self.size}; {s} *= 2)"
            return [*store, *loop(head, [*self._block(f"if ({t} % (2 * {s}) == 0)", add), barrier], unit)]
        start = self.size + self.rng.choice((" / 2", " / 2", " >> 1"))
        head = f"for (int {s} = {start}; {s} > 0; {h.halving.format(s=s)})"
        return [*store, *loop(head, [*self._block(f"if ({t} < {s})", add), barrier], unit)]

    def _tree(self) -> list[str]:
        n, h = self.names, self.habits
        fields = self._fields()
        index = h.index if h.named_row else "int"
        thread = [f"{index} {n.tid} = threadIdx.x;"] if h.named_thread else []
        heads = [*self.heads(), *thread]
        if len(heads) == 2 and self.rng.random() < 0.15 and index != "auto":
            heads = [heads[0].removesuffix(";") + ", " + heads[1].removeprefix(f"{index} ")]
        lines = [self._shared(), *heads]
        if self.rng.random() < 0.3:
            lines = lines[1:] + lines[:1]
        lines += self._row_pointers()
        assert self.spec.row
        phases = self.spec.row.definition.phases
        for phase in phases:
            acc = fields[phase.stat]
            first = f"{n.shared}[0]"
            if h.direct and phase is phases[-1]:
                # The accumulator has the statistic's name and the result is read where it lies.
                lines += self._phase(phase, fields, self._threads) + self._combined(phase, acc)
                fields = {**fields, phase.stat: first}
                lines += self._derived(phase, fields)
                continue
            lines += self._phase(phase, {**fields, phase.stat: h.local + acc}, self._threads)
            lines += self._combined(phase, h.local + acc)
            lines += [f"{h.sums} {acc} = {first};", "__syncthreads();", *self._derived(phase, fields)]
        return lines + self._result(fields, self._threads, f"if ({self.tid} == 0)")
