"""Convolutions: one thread an output element, a loop over its window."""

from __future__ import annotations

from typing import Any

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import (
    Arguments,
    handles,
    number,
    point,
    require,
    reshape,
)
from dice_training.cuke.traced.places import hold
from dice_training.cuke.traced.products import accumulate, same_size
from dice_training.cuke.traced.values import (
    Dim,
    Value,
    Written,
    constant,
    ctype,
    values,
)


def listed(value: Any, rank: int) -> list[int]:
    listed = list(value) if isinstance(value, list | tuple) else [value]
    return listed * rank if len(listed) == 1 else listed


def window_size(dim: Dim, kernel: Dim | int, stride: int, padding: int, dilation: int, out: int) -> Dim:
    """The size after a window slides over ``dim``, as an expression where the window's size is a number."""
    if dim.literal:
        return constant(out)
    text = dim.text
    width = kernel.value if isinstance(kernel, Dim) else kernel
    spread = dilation * (width - 1) + 1
    exact = (dim.value + 2 * padding - spread) // stride + 1 == out
    if not exact:
        return constant(out)
    if isinstance(kernel, Dim):
        back = kernel.text if dilation == 1 else f"{dilation} * ({kernel.text} - 1) - 1"
        inside = text + (f" + {2 * padding}" if padding else "") + f" - {back}"
    else:
        shift = 2 * padding - spread
        inside = text if shift == 0 else f"{text} + {shift}" if shift > 0 else f"{text} - {-shift}"
    if stride == 1:
        if not isinstance(kernel, Dim):
            shift = 2 * padding - spread + 1
            return dim if shift == 0 else Dim(out, f"{text} + {shift}" if shift > 0 else f"{text} - {-shift}")
        return Dim(out, f"{inside} + 1")
    return Dim(out, f"({inside}) / {stride} + 1" if " " in inside else f"{inside} / {stride} + 1")


def window_place(coord: str, letter: str, width: int, stride: int, padding: int, dilation: int) -> str:
    """Where step ``letter`` of a window of ``width`` reads, for the output's coordinate ``coord``."""
    base = coord if stride == 1 or coord == "0" else f"{coord} * {stride}"
    offset = letter if dilation == 1 else f"{letter} * {dilation}"
    text = base if width == 1 else offset if base == "0" else f"{base} + {offset}"
    return f"{text} - {padding}" if padding else text


def with_bias(value: Value, bias: Value | None, rank: int) -> Value:
    """``value`` of ``rank`` dimensions behind the channels, with a number added to each channel."""
    if bias is None:
        return value
    spread = reshape(bias, [1, bias.shape[0].value, *[1] * rank])
    return point("{0} + {1}", value, spread, dtype=value.dtype)


@handles("conv1d", "conv2d", "conv3d", "convolution")
def convolution(a: Arguments) -> Value:
    x, w = a.input, a.weight
    if getattr(a, "transposed", False):
        return transposed(a)
    rank = len(w.shape) - 2
    if a.groups == 1:
        same_size(w, 1, x.shape[1] if len(x.shape) == rank + 2 else x.shape[0])
    single = len(x.shape) == rank + 1
    if single:
        x = reshape(x, [1, *values(x.shape)])
    stride, dilation = listed(a.stride, rank), listed(a.dilation, rank)
    if isinstance(a.padding, str):
        kernel = [w.shape[2 + d].value for d in range(rank)]
        require(
            a.padding == "valid" or all(k * q % 2 for k, q in zip(kernel, dilation, strict=True)),
            "same padding of even kernels",
        )
        padding = [
            0 if a.padding == "valid" else q * (k - 1) // 2 for k, q in zip(kernel, dilation, strict=True)
        ]
    else:
        padding = listed(a.padding, rank)
    out_sizes = a.out_shape[1:] if single else a.out_shape[2:]
    space = tuple(
        window_size(x.shape[2 + d], w.shape[2 + d], stride[d], padding[d], dilation[d], out_sizes[d])
        for d in range(rank)
    )
    shape = (x.shape[0], w.shape[0], *space)
    groups = a.groups
    letters = ["kd", "kh", "kw"][3 - rank :]
    places = ["d", "h", "w"][3 - rank :]
    kind = ctype(x.dtype)

    def write(e: Emitter, i: Index) -> str:
        coords = i.coords()
        acc = e.declare(kind, "acc", number(0, x.dtype).text)
        e.block.own.discard(acc)
        depth = w.shape[1]
        first = ""
        if groups > 1 and depth.value > 1:
            first = e.declare(
                "int", "first", f"{coords[1]} / ({e.size(w.shape[0])} / {groups}) * {e.size(depth)}"
            )
        channel = "k"

        def body() -> None:
            if groups == 1:
                source = channel if depth.value > 1 else "0"
            elif depth.value == 1:
                source = (
                    coords[1]
                    if w.shape[0].value == groups
                    else hold(e, f"{coords[1]} / ({e.size(w.shape[0])} / {groups})", "g")
                )
            else:
                source = hold(e, f"{first} + {channel}", "s")
            left = e.value(x, at(x.shape, [coords[0], source, *positions]))
            right = e.value(w, at(w.shape, [coords[1], channel if depth.value > 1 else "0", *letters_now]))
            accumulate(e, kind, left, right, acc)

        positions: list[str] = []
        letters_now = [letter if w.shape[2 + d].value > 1 else "0" for d, letter in enumerate(letters)]

        def windows(d: int) -> None:
            if d == rank:
                body()
                return
            size, letter = w.shape[2 + d], letters[d]

            def step() -> None:
                text = window_place(coords[2 + d], letter, size.value, stride[d], padding[d], dilation[d])
                place = hold(e, text, places[d])
                positions.append(place)
                if padding[d]:
                    e.line(f"if ({place} < 0 || {place} >= {e.size(x.shape[2 + d])}) continue;")
                windows(d + 1)
                positions.pop()

            if size.value == 1:
                require(not padding[d], "a padded kernel of one")
                step()
            else:
                with e.inside(f"for (int {letter} = 0; {letter} < {e.size(size)}; ++{letter})"):
                    step()

        if depth.value > 1:
            with e.inside(f"for (int k = 0; k < {e.size(depth)}; ++k)"):
                windows(0)
        else:
            windows(0)
        return acc

    out: Value = Written(
        shape=shape, dtype=x.dtype, args=(x, w), write=write, heavy=True, repeats=True, name="conv"
    )
    out = with_bias(out, a.bias, rank)
    return reshape(out, a.out_shape) if single else out


@handles("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed(a: Arguments) -> Value:
    x, w = a.input, a.weight
    rank = len(w.shape) - 2
    require(len(x.shape) == rank + 2, "conv_transpose without a batch")
    stride, dilation, padding = (listed(v, rank) for v in (a.stride, a.dilation, a.padding))
    groups = a.groups
    out_channels = (
        w.shape[1]
        if groups == 1
        else Dim(w.shape[1].value * groups, f"{w.shape[1].text} * {groups}")
        if not w.shape[1].literal
        else constant(w.shape[1].value * groups)
    )
    shape = (x.shape[0], out_channels, *(constant(size) for size in a.out_shape[2:]))
    space = []
    for d in range(rank):
        size, kernel = x.shape[2 + d], w.shape[2 + d]
        rest = a.out_shape[2 + d] - (
            (size.value - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel.value - 1) + 1
        )
        if size.literal or kernel.literal:
            space.append(constant(a.out_shape[2 + d]))
            continue
        text = f"({size.text} - 1) * {stride[d]}" if stride[d] > 1 else f"{size.text} - 1"
        text += f" - {2 * padding[d]}" if padding[d] else ""
        text += f" + {kernel.text}" if dilation[d] == 1 else f" + {dilation[d]} * ({kernel.text} - 1) + 1"
        text += f" + {rest}" if rest else ""
        space.append(Dim(a.out_shape[2 + d], text))
    shape = (x.shape[0], out_channels, *space)
    letters, places = ["kd", "kh", "kw"][3 - rank :], ["d", "h", "w"][3 - rank :]
    kind = ctype(x.dtype)
    deep = groups > 1

    def write(e: Emitter, i: Index) -> str:
        coords = i.coords()
        acc = e.declare(kind, "acc", number(0, x.dtype).text)
        e.block.own.discard(acc)
        per = e.size(w.shape[1])
        column = (
            coords[1] if not deep else hold(e, f"{coords[1]} % {per}", "o") if w.shape[1].value > 1 else "0"
        )
        depth = w.shape[0].value // groups
        many = e.size(w.shape[0]) if not deep else f"{e.size(w.shape[0])} / {groups}"
        positions: list[str] = []
        names = [letter if w.shape[2 + d].value > 1 else "0" for d, letter in enumerate(letters)]

        def windows(d: int) -> None:
            if d == rank:
                source = "k" if not deep else hold(e, f"{coords[1]} / {per} * ({many}) + k", "s")
                if depth == 1 and not deep:
                    source = "0"
                left = e.value(x, at(x.shape, [coords[0], source, *positions]))
                accumulate(e, kind, left, e.value(w, at(w.shape, [source, column, *names])), acc)
                return
            size, letter = w.shape[2 + d], letters[d]
            with e.inside(f"for (int {letter} = 0; {letter} < {e.size(size)}; ++{letter})"):
                shift = letter if dilation[d] == 1 else f"{letter} * {dilation[d]}"
                text = (
                    f"{coords[2 + d]} + {padding[d]} - {shift}"
                    if padding[d]
                    else f"{coords[2 + d]} - {shift}"
                )
                place = hold(e, text, places[d])
                if stride[d] > 1:
                    e.line(f"if ({place} < 0 || {place} % {stride[d]} != 0) continue;")
                    place = hold(e, f"{place} / {stride[d]}", places[d])
                    e.line(f"if ({place} >= {e.size(x.shape[2 + d])}) continue;")
                else:
                    e.line(f"if ({place} < 0 || {place} >= {e.size(x.shape[2 + d])}) continue;")
                positions.append(place if x.shape[2 + d].value > 1 else "0")
                windows(d + 1)
                positions.pop()

        if depth > 1 or deep:
            with e.inside(f"for (int k = 0; k < {many}; ++k)"):
                windows(0)
        else:
            windows(0)
        return acc

    out: Value = Written(
        shape=shape, dtype=x.dtype, args=(x, w), write=write, heavy=True, repeats=True, name="conv_transpose"
    )
    out = with_bias(out, a.bias, rank)
    return out
