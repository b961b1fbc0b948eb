"""The existing body: how a kernel is written in a hurry, with double math, reloads, serial loops, many barriers."""

from __future__ import annotations

import random
import re
from typing import Any

from dice_training.cuke.bodies import BodyWriter, Layout, Names
from dice_training.cuke.comments import commented
from dice_training.cuke.device import Place, expression, expression_fields, join, loop
from dice_training.cuke.habits import draw_habits
from dice_training.cuke.row_ops import Phase
from dice_training.cuke.spec import Spec, Step

_DOUBLE = re.compile(r"\d\.\d+(?![\df])|\b(?!\w+f\()[a-z]\w*\d*\(|\(double\)")
"""A double literal, or a call of a function without the ``f`` of float."""

_SAME_TYPES = re.compile(r"\b(?:fmax|fmin|max|min|fmod)\(")
"""Functions that need arguments of one type."""

_AUGMENTED = re.compile(r"^(\w+) = \1 ([-+*/]) ([\w.\[\]% ]+|\([^()]*\));$")
_OPEN = re.compile(r"[-+%] ")


class HastyBody(BodyWriter):
    """``doubles``: some scalar parameters are double, so that functions of one type cannot take them."""

    def __init__(
        self,
        spec: Spec,
        names: Names,
        layout: Layout,
        rng: random.Random,
        taken: set[str],
        doubles: bool = False,
    ) -> None:
        super().__init__(spec, names, layout)
        self.rng = rng
        self.habits = draw_habits(rng, taken, layout.dynamic_shared)
        self.mixed = doubles or self.habits.real == "double"
        self.while_left = self.habits.loop == "while"
        self.tid = names.tid if self.habits.named_thread else "threadIdx.x"
        self.row = names.row
        if layout.schedule in ("block_serial", "block_tree", "warp_row") and not self.habits.named_row:
            self.row = "blockIdx.x"
        self.linear = rng.choice(("{r} * {n} + {c}", "{r} * {n} + {c}", "{c} + {r} * {n}")).format(
            r=self.row, n=names.cols, c=names.col
        )
        self.x, self.target = f"{names.x}[{self.linear}]", f"{names.out}[{self.linear}]"
        self.pointers = bool(self.habits.pointers and spec.row)
        if self.pointers and self.habits.pointers:
            self.x = f"{self.habits.pointers[0]}[{names.col}]"
            if spec.row and spec.row.definition.maps and names.x != names.out:
                self.target = f"{self.habits.pointers[1]}[{names.col}]"

    # -- small pieces

    def _block(self, head: str, body: list[str]) -> list[str]:
        """A statement with its body, in braces or, where it is one statement, perhaps without."""
        if len(body) == 1 and body[0].endswith(";") and not self.habits.braces:
            return [head, self.layout.unit + body[0]] if self.rng.random() < 0.5 else [f"{head} {body[0]}"]
        return loop(head, body, self.layout.unit)

    def _over(self, start: str, bound: str, step: str, body: list[str], name: str) -> list[str]:
        """A loop of ``name`` from ``start`` while below ``bound``."""
        kind = self.habits.counter
        if self.while_left:
            self.while_left = False
            return [
                f"{kind} {name} = {start};",
                *loop(f"while ({name} < {bound})", [*body, f"{step};"], self.layout.unit),
            ]
        return self._block(f"for ({kind} {name} = {start}; {name} < {bound}; {step})", body)

    def _over_all(self, body: list[str]) -> list[str]:
        n = self.names
        return self._over("0", n.cols, self.habits.step.format(i=n.col), body, n.col)

    def _threads(self, body: list[str]) -> list[str]:
        n = self.names
        jump = "32" if self.layout.schedule == "warp_row" and self.rng.random() < 0.7 else "blockDim.x"
        return self._over(self.tid, n.cols, f"{n.col} += {jump}", body, n.col)

    def heads(self) -> list[str]:
        n, h = self.names, self.habits
        kind = h.index
        if self.layout.schedule in ("guard", "stride"):
            return [f"{kind} {n.i} = {h.at()};"]
        if self.layout.schedule == "grid2d":
            lines = [f"{kind} {n.col} = {h.at('x')};", f"{kind} {n.row} = {h.at('y')};"]
            return lines if self.rng.random() < 0.7 else lines[::-1]
        if self.layout.schedule == "thread_row":
            return [f"{kind} {n.row} = {h.at()};"]
        return [f"{kind} {n.row} = blockIdx.x;"] if h.named_row else []

    def _row_pointers(self) -> list[str]:
        if not self.pointers or not self.habits.pointers:
            return []
        n, (source, target) = self.names, self.habits.pointers
        offset = f"{self.row} * {n.cols}"
        whole = f"(size_t){offset}" if self.rng.random() < 0.3 else offset
        shape = self.rng.choice(("{p} + {o}", "{p} + {o}", "&{p}[{o}]"))
        lines = [f"const float* {source} = {shape.format(p=n.x, o=whole)};"]
        if target in self.target:
            lines.append(f"float* {target} = {shape.format(p=n.out, o=whole)};")
        return lines

    def _assign(self, name: str, value: str) -> str:
        line = f"{name} = {value};"
        found = _AUGMENTED.match(line) if self.habits.augmented else None
        if found and not (found[2] in "*/" and _OPEN.search(found[3]) and not found[3].startswith("(")):
            return f"{name} {found[2]}= {found[3]};"
        return line

    def _step(self, step: Step, value: str, place: Place) -> str:
        op = step.definition
        if self.rng.random() > self.habits.double:
            return expression(step, value, place)
        spellings = [t for t in op.hasty if not self.mixed or not _SAME_TYPES.search(t)] or [op.cuda]
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
            # A call's only argument needs no parentheses.
            alone = re.fullmatch(r"\w+\(\{v\}\)", template) and self.rng.random() < 0.8
            inner = value if atom or alone else f"({value})"
            value = template.format(v=inner, **expression_fields(step, place))
            atom = bool(re.fullmatch(r"\w+\(\{v\}\)", template))
        return lines, value

    def _chain(
        self, steps: tuple[Step, ...], start: str, target: str | None, place: Place
    ) -> tuple[list[str], str]:
        """Statements and the expression of the final value; ``target`` is memory that may hold what is between."""
        v, real = self.names.v, self.habits.real
        if self.habits.chain == "nested" and steps:
            return self._nested(steps, start, place)
        if self.habits.chain == "memory" and target and steps:
            lines, value = [], start
            for step in steps:
                lines.append(self._assign(target, self._step(step, value, place)))
                value = target
            return lines, ""
        if self.habits.chain == "ssa":
            lines = [f"{real} {v} = {start};"]
            value = v
            const = "const " if self.rng.random() < 0.4 else ""
            for k, step in enumerate(steps, 1):
                name = f"{self.habits.ssa}{k}" if self.habits.ssa else f"{v}{k}"
                lines.append(f"{const}{real} {name} = {self._step(step, value, place)};")
                value = name
            return lines, value
        lines = [f"{real} {v} = {start};"]
        return lines + [self._assign(v, self._step(step, v, place)) for step in steps], v

    # -- bodies

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
            return self._over("threadIdx.x", n.cols, f"{n.col} += blockDim.x", body, n.col)

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
        name = next(c for c in self.rng.sample(("r", "res", "y", "ans"), 4) if c not in used)
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
                    self._block(f"for (int {s} = 1; {s} < blockDim.x / 32; {h.step.format(i=s)})", [gather]),
                    unit,
                ),
                barrier,
            ]
        store = [f"{shared}[{t}] = {own};", barrier]
        if h.reduction == "serial":
            gather = join(phase.combine, f"{shared}[0]", f"{shared}[{s}]")
            each = self._block(f"for (int {s} = 1; {s} < blockDim.x; {h.step.format(i=s)})", [gather])
            return [*store, *loop(f"if ({t} == 0)", each, unit), barrier]
        add = [join(phase.combine, f"{shared}[{t}]", f"{shared}[{t} + {s}]")]
        if h.reduction == "interleaved":
            head = f"for (int {s} = 1; {s} < blockDim.x; {s} *= 2)"
            return [*store, *loop(head, [*self._block(f"if ({t} % (2 * {s}) == 0)", add), barrier], unit)]
        start = self.rng.choice(("blockDim.x / 2", "blockDim.x / 2", "blockDim.x >> 1"))
        head = f"for (int {s} = {start}; {s} > 0; {h.halving.format(s=s)})"
        return [*store, *loop(head, [*self._block(f"if ({t} < {s})", add), barrier], unit)]

    def _tree(self) -> list[str]:
        n, h = self.names, self.habits
        fields = self._fields()
        index = h.index if h.named_row else "int"
        thread = [f"{index} {n.tid} = threadIdx.x;"] if h.named_thread else []
        lines = [self._shared(), *self.heads(), *thread]
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
