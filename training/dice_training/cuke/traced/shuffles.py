"""Windows and channels that only move."""

from __future__ import annotations

from dice_training.cuke.traced.convolutions import listed
from dice_training.cuke.traced.emit import Emitter, Index
from dice_training.cuke.traced.lower import (
    Arguments,
    axis,
    handles,
    moved,
    require,
    reshape,
)
from dice_training.cuke.traced.places import guarded, hold
from dice_training.cuke.traced.values import (
    Value,
    Written,
    constant,
    values,
)
from dice_training.cuke.traced.views import permute


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


@handles("im2col")
def im2col(a: Arguments) -> Value:
    value = a.self_
    single = len(value.shape) == 3
    if single:
        value = reshape(value, [1, *values(value.shape)])
    kernel, dilation, padding, stride = (
        listed(v, 2) for v in (a.kernel_size, a.dilation, a.padding, a.stride)
    )
    h, w = (
        (value.shape[2 + d].value + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        for d in (0, 1)
    )
    n, c = value.shape[0], value.shape[1]
    shape = (n, c, constant(kernel[0]), constant(kernel[1]), constant(h), constant(w))

    def write(e: Emitter, i: Index) -> str:
        places, tests = [], []
        for d in (0, 1):
            at_, inner = i.coord(4 + d), i.coord(2 + d)
            text = f"{at_} * {stride[d]} + {inner} * {dilation[d]} - {padding[d]}"
            p = hold(e, text.replace(" * 1", "").replace(" - 0", ""), "hw"[d])
            places.append(p if value.shape[2 + d].value > 1 else "0")
            if padding[d]:
                tests += [f"{p} >= 0", f"{p} < {e.size(value.shape[2 + d])}"]
        return guarded(e, value, " && ".join(tests), [i.coord(0), i.coord(1), *places], "0.0f")

    out = Written(shape=shape, dtype=value.dtype, args=(value,), write=write, name="unfold")
    return reshape(out, a.out_shape)
