"""The better body: one pass over memory where possible, float math, warp and block reductions."""

from __future__ import annotations

from dice_training.cuke.bodies import BodyWriter
from dice_training.cuke.device import NEUTRAL, chain, join, loop, warp_shuffle
from dice_training.cuke.row_ops import Combine


class BetterBody(BodyWriter):
    def write(self) -> list[str]:
        return self._row() if self.spec.row else self._pointwise()

    def _pointwise(self) -> list[str]:
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

    def _row(self) -> list[str]:
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
            lines.insert(0, self._shared())
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
        work = [f"float {n.v} = {result};", *chain(self.spec.after, n.v, place), f"{n.out}[{n.row}] = {n.v};"]
        return lines + (loop(guard.strip(), work, unit) if guard else work)

    def _shared(self) -> str:
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
