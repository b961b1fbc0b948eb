"""Windows and channels that only move."""

from __future__ import annotations

from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    handles,
    moved,
    require,
    reshape,
)
from dice_training.cuke.traced.movement import hold, permute
from dice_training.cuke.traced.values import (
    Value,
    constant,
    values,
)


@handles("unfold")
def unfold(a: Arguments) -> Value:
    require(isinstance(getattr(a, "dimension", None), int), "unfold")
    dim = axis(a.dimension, len(a.self_.shape))
    shape = (*a.self_.shape[:dim], constant(a.out_shape[dim]), *a.self_.shape[dim + 1 :], constant(a.size))

    def coords(e: Emitter, i: Index) -> list[str]:
        out = i.coords()
        inner = out.pop()
        out[dim] = hold(e, f"{out[dim]} * {a.step} + {inner}" if a.step != 1 else f"{out[dim]} + {inner}")
        return out

    return moved(a.self_, shape, coords, "unfold")


@handles("pixel_shuffle")
def pixel_shuffle(a: Arguments) -> Value:
    r = a.upscale_factor
    *lead, channels, h, w = values(a.self_.shape)
    split_ = reshape(a.self_, [*lead, channels // (r * r), r, r, h, w])
    n = len(lead)
    return reshape(permute(split_, [*range(n), n, n + 3, n + 1, n + 4, n + 2]), a.out_shape)


@handles("pixel_unshuffle")
def pixel_unshuffle(a: Arguments) -> Value:
    r = a.downscale_factor
    *lead, channels, h, w = values(a.self_.shape)
    split_ = reshape(a.self_, [*lead, channels, h // r, r, w // r, r])
    n = len(lead)
    return reshape(permute(split_, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), a.out_shape)


@handles("channel_shuffle")
def channel_shuffle(a: Arguments) -> Value:
    n, c, *rest = values(a.self_.shape)
    split_ = reshape(a.self_, [n, a.groups, c // a.groups, *rest])
    return reshape(permute(split_, [0, 2, 1, *range(3, 3 + len(rest))]), a.out_shape)
