"""Pooling, resizing and look-ups: one thread an output element, a loop over its window."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import Arguments, cast, handles, moved, point, require, reshape
from dice_training.cuke.traced.movement import hold
from dice_training.cuke.traced.nans import may_be_nan
from dice_training.cuke.traced.orders import Unavailable
from dice_training.cuke.traced.products import _listed, window_size
from dice_training.cuke.traced.reductions import mean, reduce
from dice_training.cuke.traced.values import Shape, Value, Written, constant, ctype, values


def pool(
    value: Value,
    shape: Shape,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    how: str,
    whole: bool = True,
    divisor: int | None = None,
    ceil: bool = False,
) -> Value:
    """``how``: ``max``, ``avg`` or ``argmax`` over sliding windows of the last dimensions. ``whole``: padding counts."""
    rank = len(kernel)
    lead = len(shape) - rank
    letters, places = ["kd", "kh", "kw"][3 - rank :], ["d", "h", "w"][3 - rank :]
    kind = ctype(value.dtype)
    clipped = ceil or any(padding)
    counts = how == "avg" and clipped and divisor is None and (not whole or ceil)
    require(not (counts and whole), "average pooling with ceil_mode")

    def write(e: Emitter, i: Index) -> str:
        coords = i.coords()
        acc = e.declare(kind, "acc", "0.0f" if how == "avg" else "-INFINITY")
        e.block.own.discard(acc)
        where = e.declare("int", "where", "0") if how == "argmax" else ""
        count = e.declare("int", "count", "0") if counts else ""
        positions: list[str] = []

        def windows(d: int) -> None:
            if d == rank:
                v = e.variable(value, at(value.shape, [*coords[:lead], *positions]))
                if how == "avg":
                    e.line(f"{acc} += {v};")
                    if counts:
                        e.line(f"++{count};")
                elif how == "max" and may_be_nan(value):
                    e.line(f"if ({v} > {acc} || isnan({v})) {acc} = {v};")
                elif how == "max":
                    e.line(f"{acc} = fmaxf({acc}, {v});")
                else:
                    flat = positions[0]
                    for k in range(1, rank):
                        flat = (
                            f"({flat}) * {e.size(value.shape[lead + k])} + {positions[k]}"
                            if " " in flat
                            else f"{flat} * {e.size(value.shape[lead + k])} + {positions[k]}"
                        )
                    with e.inside(f"if ({v} > {acc})", loop=False):
                        e.line(f"{acc} = {v};")
                        e.line(f"{where} = {flat};")
                return
            letter = letters[d]
            size = value.shape[lead + d]

            def step() -> None:
                base = coords[lead + d] if stride[d] == 1 else f"{coords[lead + d]} * {stride[d]}"
                offset = letter if dilation[d] == 1 else f"{letter} * {dilation[d]}"
                if coords[lead + d] == "0":
                    base = "0"
                text = base if kernel[d] == 1 else offset if base == "0" else f"{base} + {offset}"
                if padding[d]:
                    text += f" - {padding[d]}"
                place = hold(e, text, places[d])
                if padding[d]:
                    e.line(f"if ({place} < 0 || {place} >= {e.size(size)}) continue;")
                elif ceil:
                    e.line(f"if ({place} >= {e.size(size)}) continue;")
                positions.append(place if size.value > 1 else "0")
                windows(d + 1)
                positions.pop()

            if kernel[d] == 1 and not padding[d] and not ceil:
                step()
                return
            with e.inside(f"for (int {letter} = 0; {letter} < {kernel[d]}; ++{letter})"):
                step()

        windows(0)
        if how == "argmax":
            return where
        return acc

    dtype = torch.int64 if how == "argmax" else value.dtype
    out: Value = Written(shape=shape, dtype=dtype, args=(value,), write=write, heavy=True, name=f"{how}_pool")
    if how == "avg":
        if counts:
            return _counted(value, out, shape, kernel, stride, padding, dilation)
        number_ = divisor or _product(kernel)
        out = point("{0} / {1}", out, float(number_), dtype=value.dtype)
    return out


def _counted(
    value: Value,
    sums: Value,
    shape: Shape,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Value:
    """Sums divided by how many elements of the window are inside."""
    lead = len(shape) - len(kernel)

    def write(e: Emitter, i: Index) -> str:
        parts = []
        for d, width in enumerate(kernel):
            first = f"{i.coord(lead + d)} * {stride[d]} - {padding[d]}"
            low = hold(e, first, "low")
            size = e.size(value.shape[lead + d])
            parts.append(f"(min({low} + {width}, {size}) - max({low}, 0))")
        return " * ".join(parts)

    count = Written(shape=shape, dtype=value.dtype, args=(), write=write, name="count")
    return point("{0} / {1}", sums, count, dtype=value.dtype)


def _product(sizes: list[int]) -> int:
    out = 1
    for size in sizes:
        out *= size
    return out


def _pooled(a: Arguments, rank: int, how: str) -> Any:
    value = a.self_
    kernel = _listed(a.kernel_size, rank)
    stride = _listed(a.stride, rank) if a.stride else kernel
    padding, dilation = _listed(a.padding, rank), _listed(getattr(a, "dilation", 1), rank)
    lead = len(value.shape) - rank
    require(how != "avg" or not (a.ceil_mode and any(padding)), "average pooling with ceil_mode and padding")
    space = tuple(
        window_size(
            value.shape[lead + d], kernel[d], stride[d], padding[d], dilation[d], a.out_shape[lead + d]
        )
        for d in range(rank)
    )
    shape = (*value.shape[:lead], *space)
    ceil = a.ceil_mode and any(
        (a.out_shape[lead + d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 > value.shape[lead + d].value + 2 * padding[d]
        for d in range(rank)
    )  # fmt: skip
    whole = getattr(a, "count_include_pad", True) and not ceil
    return pool(
        value,
        shape,
        kernel,
        stride,
        padding,
        dilation,
        how,
        whole,
        getattr(a, "divisor_override", None),
        ceil,
    )


def _pools(rank: int) -> None:
    handles(f"max_pool{rank}d")(lambda a: _pooled(a, rank, "max"))
    handles(f"avg_pool{rank}d")(lambda a: _pooled(a, rank, "avg"))
    both = lambda a: [_pooled(a, rank, "max"), _pooled(a, rank, "argmax")]  # noqa: E731
    handles(f"max_pool{rank}d_with_indices")(both)
    handles(f"adaptive_avg_pool{rank}d", f"_adaptive_avg_pool{rank}d")(lambda a: _adaptive(a, rank, "avg"))
    handles(f"adaptive_max_pool{rank}d")(lambda a: _with_indices(_adaptive(a, rank, "max")))


def _with_indices(best: Value) -> list[Value]:
    return [best, Unavailable(shape=best.shape, dtype=torch.int64, name="indices of adaptive_max_pool")]


for _rank in (1, 2, 3):
    _pools(_rank)


def _adaptive(a: Arguments, rank: int, how: str) -> Value:
    value = a.self_
    lead = len(value.shape) - rank
    sizes, wanted = values(value.shape)[lead:], a.out_shape[lead:]
    if all(w == 1 for w in wanted):
        dims = tuple(range(lead, lead + rank))
        return mean(value, dims) if how == "avg" else reduce("max", value, dims, True, value.dtype)
    shape = (
        *value.shape[:lead],
        *(dim if dim.value == w else constant(w) for dim, w in zip(value.shape[lead:], wanted, strict=True)),
    )
    if all(s % w == 0 for s, w in zip(sizes, wanted, strict=True)):
        kernel = [s // w for s, w in zip(sizes, wanted, strict=True)]
        return pool(value, shape, kernel, kernel, [0] * rank, [1] * rank, how)
    letters = ["d", "h", "w"][3 - rank :]

    def write(e: Emitter, i: Index) -> str:
        coords = i.coords()
        acc = e.declare(ctype(value.dtype), "acc", "0.0f" if how == "avg" else "-INFINITY")
        e.block.own.discard(acc)
        bounds = []
        for d in range(rank):
            c, size, out = coords[lead + d], e.size(value.shape[lead + d]), e.size(shape[lead + d])
            low = hold(e, f"{c} * {size} / {out}", f"{letters[d]}0")
            high = hold(e, f"(({c} + 1) * {size} + {out} - 1) / {out}", f"{letters[d]}1")
            bounds.append((low, high))

        def windows(d: int) -> None:
            if d == rank:
                v = e.value(
                    value,
                    at(
                        value.shape,
                        [
                            *coords[:lead],
                            *[n if value.shape[lead + k].value > 1 else "0" for k, n in enumerate(letters)],
                        ],
                    ),
                )
                e.line(f"{acc} += {v};" if how == "avg" else f"{acc} = fmaxf({acc}, {v});")
                return
            low, high = bounds[d]
            with e.inside(f"for (int {letters[d]} = {low}; {letters[d]} < {high}; ++{letters[d]})"):
                windows(d + 1)

        windows(0)
        if how == "avg":
            count = " * ".join(f"({high} - {low})" for low, high in bounds)
            e.line(f"{acc} /= {count if rank == 1 else f'({count})'};")
        return acc

    return Written(
        shape=shape, dtype=value.dtype, args=(value,), write=write, heavy=True, name=f"adaptive_{how}_pool"
    )


# -- resizing


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
    from dice_training.cuke.traced.values import Dim

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


@handles("im2col")
def im2col(a: Arguments) -> Value:
    value = a.self_
    single = len(value.shape) == 3
    if single:
        value = reshape(value, [1, *values(value.shape)])
    kernel, dilation, padding, stride = (
        _listed(v, 2) for v in (a.kernel_size, a.dilation, a.padding, a.stride)
    )
    h, w = (
        (value.shape[2 + d].value + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        for d in (0, 1)
    )
    n, c = value.shape[0], value.shape[1]
    shape = (n, c, constant(kernel[0]), constant(kernel[1]), constant(h), constant(w))

    def write(e: Emitter, i: Index) -> str:
        from dice_training.cuke.traced.movement import guarded

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


# -- look-ups


@handles("isin")
def isin(a: Arguments) -> Value:
    require(isinstance(a.elements, Value) and isinstance(a.test_elements, Value), "isin of a number")
    value = a.elements
    tests = reshape(a.test_elements, [_product(list(values(a.test_elements.shape)))])
    common = torch.promote_types(value.dtype, tests.dtype)
    value, tests = cast(value, common), cast(tests, common)

    def write(e: Emitter, i: Index) -> str:
        v = e.variable(value, i)
        found = e.declare("bool", "found", "false")
        e.block.own.discard(found)
        with e.inside(f"for (int k = 0; k < {e.size(tests.shape[0])}; ++k)"):
            e.line(
                f"found = found || {e.value(tests, at(tests.shape, ['k']))} == {v};".replace("found", found)
            )
        return found

    out: Value = Written(
        shape=value.shape, dtype=torch.bool, args=(value, tests), write=write, heavy=True, name="isin"
    )
    return point("!{0}", out, dtype=torch.bool) if a.invert else out


@handles("bucketize", "searchsorted")
def bucketize(a: Arguments) -> Value:
    edges, value = (a.boundaries, a.self_) if a.operator == "bucketize" else (a.sorted_sequence, a.self_)
    require(
        isinstance(value, Value) and len(edges.shape) == 1 and not getattr(a, "sorter", None),
        "searchsorted in rows",
    )
    right = a.right or getattr(a, "side", None) == "right"
    edges = (
        cast(edges, value.dtype)
        if edges.dtype != value.dtype and not edges.dtype.is_floating_point
        else edges
    )
    require(a.out_dtype in (torch.int64, torch.int32), "bucketize")

    def write(e: Emitter, i: Index) -> str:
        v = e.variable(value, i)
        low = e.declare("int", "low", "0")
        high = e.declare("int", "high", e.size(edges.shape[0]))
        e.block.own -= {low, high}
        with e.inside(f"while ({low} < {high})"):
            e.line(f"int mid = ({low} + {high}) / 2;")
            edge = e.value(edges, at(edges.shape, ["mid"]))
            e.line(f"if ({edge} {'<=' if right else '<'} {v}) {low} = mid + 1;")
            e.line(f"else {high} = mid;")
        return low

    return Written(
        shape=value.shape, dtype=a.out_dtype, args=(value, edges), write=write, heavy=True, name="bucketize"
    )
