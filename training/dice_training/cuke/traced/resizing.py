"""Resizing."""

from __future__ import annotations

from typing import Any

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import Arguments, handles, moved
from dice_training.cuke.traced.places import hold
from dice_training.cuke.traced.values import Dim, Value, Written, constant


@handles("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(a: Arguments) -> Value:
    value = getattr(a, "input", None) or a.self_
    shape = (
        *value.shape[:2],
        *(_scaled_size(dim, out) for dim, out in zip(value.shape[2:], a.out_shape[2:], strict=True)),
    )

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        for d in range(2, len(shape)):
            old, new = value.shape[d], shape[d]
            if old.value == 1 or old.value == new.value:
                out[d] = out[d] if old.value > 1 else "0"
            elif new.value % old.value == 0:
                out[d] = hold(e, f"{out[d]} / {new.value // old.value}", "s")
            else:
                out[d] = hold(e, f"{out[d]} * {e.size(old)} / {e.size(new)}", "s")
        return out

    return moved(value, shape, coords, "upsample")


def _scaled_size(dim: Any, out: int) -> Any:
    if dim.value == out:
        return dim
    if out % dim.value == 0 and not dim.literal:
        return Dim(out, f"{dim.text} * {out // dim.value}")
    return constant(out)


@handles("upsample_bilinear2d", "upsample_linear1d")
def bilinear(a: Arguments) -> Value:
    value = getattr(a, "input", None) or a.self_
    rank = len(value.shape) - 2
    shape = (
        *value.shape[:2],
        *(_scaled_size(dim, out) for dim, out in zip(value.shape[2:], a.out_shape[2:], strict=True)),
    )

    def write(e: Emitter, i: Index) -> str:
        sides = []
        for d in range(2, 2 + rank):
            old, new, letter = value.shape[d], shape[d], "yx"[d - 2] if rank == 2 else "x"
            c = i.coord(d)
            if a.align_corners:
                ratio = f"(float)({e.size(old)} - 1) / ({e.size(new)} - 1)" if new.value > 1 else "0.0f"
                source = f"{c} * ({ratio})"
            else:
                source = f"fmaxf(({c} + 0.5f) * {e.size(old)} / {e.size(new)} - 0.5f, 0.0f)"
            f = e.declare("float", f"f{letter}", source)
            low = hold(e, f"(int){f}", f"{letter}0")
            high = hold(e, f"{low} + 1 < {e.size(old)} ? {low} + 1 : {low}", f"{letter}1")
            e.line(f"{f} -= {low};")
            sides.append((low, high, f))

        def corner(picks: list[int]) -> str:
            places = [sides[d][picks[d]] if value.shape[2 + d].value > 1 else "0" for d in range(rank)]
            return e.value(value, at(value.shape, [i.coord(0), i.coord(1), *places]))

        if rank == 1:
            low, high = corner([0]), corner([1])
            return f"{low} * (1.0f - {sides[0][2]}) + {high} * {sides[0][2]}"
        rows = []
        for y in (0, 1):
            low, high = corner([y, 0]), corner([y, 1])
            rows.append(e.declare("float", "r", f"{low} * (1.0f - {sides[1][2]}) + {high} * {sides[1][2]}"))
        return f"{rows[0]} * (1.0f - {sides[0][2]}) + {rows[1]} * {sides[0][2]}"

    return Written(shape=shape, dtype=value.dtype, args=(value,), write=write, name="upsample")
