"""Names of a kernel file: what its author calls the buffers, sizes and indices."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import chain, count

from dice_training.cuke.bodies import Names
from dice_training.cuke.spec import Operand, Spec
from dice_training.cuke.words import NamePool

_STATS = {
    "peak": ("m", "max_val", "mx", "best", "row_max", "maxv", "peak", "largest"),
    "low": ("mn", "min_val", "low", "row_min", "smallest"),
    "total": ("sum", "s", "acc", "total", "row_sum", "accum", "psum"),
    "sq": ("sq", "ss", "var_sum", "m2", "dev", "acc2"),
    "mean": ("mean", "mu", "avg"),
    "inv": ("inv", "scale_inv", "inv_denom", "recip"),
    "rstd": ("rstd", "inv_std", "inv_rms", "norm_factor", "rms_inv"),
    "lse": ("lse", "log_sum", "log_z"),
}
_X = ("x", "x", "in", "input", "src", "data", "inp", "d_in", "lhs", "A", "X", "img", "values")
_OUT = ("out", "out", "output", "dst", "y", "result", "res", "d_out", "C", "Y", "dest")
_N = ("n", "n", "size", "N", "count", "num_elements", "len", "total_size", "numel", "num")
_ROWS = ("rows", "batch", "num_rows", "B", "m_rows", "batch_size", "nrow")
_COLS = ("cols", "dim", "width", "num_cols", "D", "hidden", "row_len", "ncol")
_I = ("i", "i", "idx", "tid", "gid", "index", "k", "pos")
_ROW = ("row", "b", "rid", "r", "bid")
_COL = ("j", "col", "c", "k", "d", "i")

# What the better body calls a thing that the existing one has no name for: the first that is free.
_USUAL = {
    "v": ("v", "val", "value"),
    "i": ("i", "idx", "pos"),
    "row": ("row", "rid", "row_id"),
    "col": ("col", "c", "cid"),
    "tid": ("tid", "tx", "thread"),
    "shared": ("shared", "smem", "sdata"),
}


def draw_names(spec: Spec, rng: random.Random, inplace: bool, x: str | None = None) -> Names:
    pool = NamePool(rng, {s.name for s in spec.scalars if s.name} | {o.name for o in spec.operands})
    fresh, pool.fresh = pool.fresh, pool.fresh * 0.5
    name = x or pool.take(_X)
    pool.used.add(name)
    out = name if inplace else pool.take(_OUT)
    sizes = {"n": pool.take(_N), "rows": pool.take(_ROWS), "cols": pool.take(_COLS)}
    # Local names are what a body must be read for: they vary most.
    pool.fresh = max(fresh, rng.choice((0.0, 0.2, 0.6)))
    return Names(
        x=name,
        out=out,
        **sizes,
        i=pool.take(_I),
        row=pool.take(_ROW),
        col=pool.take(_COL),
        tid=pool.take(("tid", "t", "tx", "lane_id", "thread")),
        v=pool.take(("v", "val", "value", "xv", "z", "elem")),
        shared=pool.take(("sdata", "smem", "shared", "buf", "cache", "sh", "scratch")),
        stats={stat: pool.take(choices) for stat, choices in _STATS.items()},
        pointers={o.name: o.name for o in spec.operands},
    )


def settled(names: Names, body: str, around: str) -> Names:
    """Names that the existing ``body`` does not show take their usual form: the better body has no hidden choice.

    ``around``: the text whose names are taken (the head of the file and the parameters).
    """
    shown = set(re.findall(r"\w+", body))
    taken = set(re.findall(r"\w+", around))
    fields = ("v", "i", "row", "col", "tid", "shared")
    kept = {f: getattr(names, f) for f in fields if getattr(names, f) in shown}
    stats = {stat: name for stat, name in names.stats.items() if name in shown}
    taken |= {*kept.values(), *stats.values()}

    def usual(choices: tuple[str, ...]) -> str:
        numbered = (f"{choices[0]}{k}" for k in count(2))
        name = next(c for c in chain(choices, numbered) if c not in taken)
        taken.add(name)
        return name

    chosen = {f: kept[f] if f in kept else usual(_USUAL[f]) for f in fields}
    for stat, name in names.stats.items():
        stats.setdefault(stat, usual((stat, f"row_{stat}", f"{stat}_value")))
        assert name
    return replace(names, **chosen, stats=stats)


def renamed(spec: Spec) -> Spec:
    """Operands under names that do not meet the C names of the file."""
    clash = set(_X + _OUT + _N + _ROWS + _COLS + _I + _ROW + _COL) | {"t", "v", "w", "u", "z", "s"}
    used = {o.name for o in spec.operands}
    usual = (
        n for n in ("extra", "other", "aux", "rhs", "vec", *(f"p{k}" for k in range(1, 9))) if n not in used
    )
    fresh = iter(usual)
    mapping = {o.name: (o.name if o.name not in clash else next(fresh)) for o in spec.operands}

    def fix(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(replace(o, name=mapping[o.name]) for o in operands)

    return replace(
        spec,
        before=tuple(replace(s, operands=fix(s.operands)) for s in spec.before),
        row=replace(spec.row, affine=fix(spec.row.affine)) if spec.row else None,
        after=tuple(replace(s, operands=fix(s.operands)) for s in spec.after),
    )
