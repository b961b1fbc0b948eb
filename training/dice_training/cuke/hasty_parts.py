"""Pieces of a body as it is written in a hurry: statements, loops, and chains of operators in several idioms."""

from __future__ import annotations

import random
import re

from dice_training.cuke.bodies import BodyWriter, Layout, Names
from dice_training.cuke.device import Place, expression, expression_fields, loop
from dice_training.cuke.habits import draw_habits
from dice_training.cuke.spec import Spec, Step

_DOUBLE = re.compile(r"\d\.\d+(?![\df])|\b(?!\w+f\()[a-z]\w*\d*\(|\(double\)")
"""A double literal, or a call of a function without the ``f`` of float."""

_SAME_TYPES = re.compile(r"\b(?:fmax|fmin|max|min|fmod)\(")
"""Functions that need arguments of one type."""

_AUGMENTED = re.compile(r"^(\w+) = \1 ([-+*/]) ([\w.\[\]% ]+|\([^()]*\));$")
_OPEN = re.compile(r"[-+%] ")


_IFS = {
    "relu": ("if ({v} < 0) {v} = 0;",),
    "abs": ("if ({v} < 0.0f) {v} = -{v};",),
    "clamp": ("if ({v} < {a}) {v} = {a};", "if ({v} > {b}) {v} = {b};"),
    "clamp_min": ("if ({v} < {a}) {v} = {a};",),
    "clamp_max": ("if ({v} > {a}) {v} = {a};",),
    "relu6": ("if ({v} < 0.0f) {v} = 0.0f;", "if ({v} > 6.0f) {v} = 6.0f;"),
    "leaky_relu": ("if ({v} < 0) {v} *= {a};",),
    "elu": ("if ({v} < 0) {v} = {a} * (exp({v}) - 1.0);",),
    "masked_fill": ("if ({v} < {a}) {v} = {b};",),
    "where_scale": ("if (!({v} > {a})) {v} = {v} * {b};",),
}
"""Operators as statements that change a variable."""


class HastyParts(BodyWriter):
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
        # The block's size as the launch has it, or as the device knows it.
        self.size = (
            layout.static_shared if rng.random() < 0.2 and layout.schedule != "grid2d" else "blockDim.x"
        )
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
        jump = self.size
        if self.layout.schedule == "warp_row" and self.rng.random() < 0.5:
            jump = "32"
        return self._over(self.tid, n.cols, f"{n.col} += {jump}", body, n.col)

    def _global(self) -> str:
        return self.habits.at().replace("blockDim.x", self.size)

    def heads(self) -> list[str]:
        n, h = self.names, self.habits
        kind = h.index
        if self.layout.schedule in ("guard", "stride"):
            return [f"{kind} {n.i} = {self._global()};"]
        if self.layout.schedule == "grid2d":
            lines = [f"{kind} {n.col} = {h.at('x')};", f"{kind} {n.row} = {h.at('y')};"]
            return lines if self.rng.random() < 0.7 else lines[::-1]
        if self.layout.schedule == "thread_row":
            return [f"{kind} {n.row} = {self._global()};"]
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
        for step in steps:
            ifs = _IFS.get(step.op) if self.habits.ifs else None
            if ifs:
                fields = expression_fields(step, place)
                lines += [line.format(v=v, **fields) for line in ifs]
            else:
                lines.append(self._assign(v, self._step(step, v, place)))
        return lines, v
