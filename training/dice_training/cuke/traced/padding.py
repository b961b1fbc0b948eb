"""Padding."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    handles,
    moved,
    number,
)
from dice_training.cuke.traced.places import guarded, hold
from dice_training.cuke.traced.values import (
    Value,
    Written,
    plus,
)


@handles("pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d")  # fmt: skip
def pad(a: Arguments) -> Value:
    value, amounts = a.self_, list(getattr(a, "pad", None) or a.padding)
    mode = getattr(a, "mode", "constant")
    rank = len(value.shape)
    sides = [(0, 0)] * rank
    for k in range(len(amounts) // 2):
        sides[rank - 1 - k] = (amounts[2 * k], amounts[2 * k + 1])
    shape = tuple(plus(dim, low + high) for dim, (low, high) in zip(value.shape, sides, strict=True))
    if mode == "constant":
        fill = number(getattr(a, "value", 0) or 0, a.out_dtype).text

        def write(e: Emitter, i: Index) -> str:
            coords, tests = i.coords(), []
            for d, (low, high) in enumerate(sides):
                if (low, high) == (0, 0):
                    continue
                coords[d] = hold(
                    e,
                    f"{coords[d]} - {low}" if low > 0 else f"{coords[d]} + {-low}" if low < 0 else coords[d],
                    "p",
                )
                tests += [f"{coords[d]} >= 0"] * (low > 0)
                tests += [f"{coords[d]} < {e.size(value.shape[d])}"] * (high > 0)
            return guarded(e, value, " && ".join(tests), coords, fill)

        return Written(shape=shape, dtype=a.out_dtype, args=(value,), write=write, name="pad")

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        for d, (low, high) in enumerate(sides):
            if (low, high) == (0, 0):
                continue
            size = e.size(value.shape[d])
            p = hold(e, f"{out[d]} - {low}", "p")
            if mode == "reflect":
                q = hold(e, f"{p} < 0 ? -{p} : {p}", "q")
                out[d] = hold(e, f"{q} < {size} ? {q} : 2 * ({size} - 1) - {q}", "s")
            elif mode == "replicate":
                out[d] = hold(e, f"{p} < 0 ? 0 : ({p} < {size} ? {p} : {size} - 1)", "s")
            else:
                out[d] = hold(e, f"({p} + {size}) % {size}", "s")
        return out

    return moved(value, shape, coords, "pad")


def _pad_mode(mode: str) -> Any:
    def handler(a: Arguments) -> Value:
        a.mode = mode
        return pad(a)

    return handler


handles("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")(_pad_mode("reflect"))
handles("replication_pad1d", "replication_pad2d", "replication_pad3d")(_pad_mode("replicate"))
