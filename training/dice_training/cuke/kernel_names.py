"""Names of a kernel file: what its author calls the buffers, sizes and indices."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from dice_training.cuke.bodies import Names
from dice_training.cuke.spec import Operand, Spec

_STATS = {
    "peak": ("m", "max_val", "mx", "best", "row_max", "maxv", "peak"),
    "low": ("mn", "min_val", "low", "row_min"),
    "total": ("sum", "s", "acc", "total", "row_sum"),
    "sq": ("sq", "ss", "var_sum", "m2", "dev"),
    "mean": ("mean", "mu", "avg"),
    "inv": ("inv", "scale_inv", "inv_denom"),
    "rstd": ("rstd", "inv_std", "inv_rms"),
    "lse": ("lse", "log_sum", "log_z"),
}
_X = ("x", "x", "in", "input", "src", "data", "a", "inp", "d_in", "lhs", "A", "X", "img", "values")
_OUT = ("out", "out", "output", "dst", "y", "result", "res", "d_out", "o", "C", "Y", "dest")
_N = ("n", "n", "size", "N", "count", "num_elements", "len", "total_size", "numel", "num")
_ROWS = ("rows", "batch", "num_rows", "B", "m_rows", "batch_size")
_COLS = ("cols", "dim", "width", "num_cols", "D", "hidden", "row_len")
_I = ("i", "i", "idx", "tid", "gid", "index", "k", "pos")
_ROW = ("row", "b", "rid")
_COL = ("j", "col", "c", "k", "d")


def draw_names(spec: Spec, rng: random.Random, inplace: bool, x: str | None = None) -> Names:
    used: set[str] = {s.name for s in spec.scalars if s.name}

    def take(pool: tuple[str, ...]) -> str:
        free = [p for p in pool if p not in used]
        name = rng.choice(free)
        used.add(name)
        return name

    pointers = {}
    for operand in spec.operands:
        used.add(operand.name)
        pointers[operand.name] = operand.name
    x = take((x,) if x else _X)
    return Names(
        x=x,
        out=x if inplace else take(_OUT),
        n=take(_N),
        rows=take(_ROWS),
        cols=take(_COLS),
        i=take(_I),
        row=take(_ROW),
        col=take(_COL),
        tid=take(("tid", "t", "tx", "lane_id")),
        v=take(("v", "val", "value", "t", "xv")),
        shared=take(("sdata", "smem", "shared", "buf", "cache")),
        stats={stat: take(pool) for stat, pool in _STATS.items()},
        pointers=pointers,
    )


def settled(names: Names, text: str) -> Names:
    """Names that the existing body does not show take their usual form: the better body has no hidden choice."""
    shown = set(re.findall(r"\w+", text)) | {
        names.x,
        names.out,
        names.n,
        names.rows,
        names.cols,
        *names.pointers.values(),
    }

    def settle(name: str, usual: str) -> str:
        return name if name in shown or usual in shown else usual

    return replace(
        names,
        v=settle(names.v, "v"),
        tid=settle(names.tid, "tid"),
        shared=settle(names.shared, "shared"),
        stats={stat: settle(name, stat) for stat, name in names.stats.items()},
    )


def renamed(spec: Spec) -> Spec:
    """Operands under names that do not meet the C names of the file."""
    clash = set(_X + _OUT + _N + _ROWS + _COLS + _I + _ROW + _COL) | {"t", "v", "w", "u", "z", "s"}
    fresh = iter(("extra", "other", "aux", "rhs", "vec", "p1", "p2", "p3"))
    mapping = {o.name: (o.name if o.name not in clash else next(fresh)) for o in spec.operands}

    def fix(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(replace(o, name=mapping[o.name]) for o in operands)

    return replace(
        spec,
        before=tuple(replace(s, operands=fix(s.operands)) for s in spec.before),
        row=replace(spec.row, affine=fix(spec.row.affine)) if spec.row else None,
        after=tuple(replace(s, operands=fix(s.operands)) for s in spec.after),
    )
