"""Products of matrices and convolutions: one thread an output element, a loop over what is summed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import (
    Arguments,
    common_shape,
    expand,
    handles,
    number,
    point,
    require,
    reshape,
)
from dice_training.cuke.traced.movement import hold, permute
from dice_training.cuke.traced.norms import softmax
from dice_training.cuke.traced.reductions import columns, total
from dice_training.cuke.traced.values import (
    Buffer,
    Dim,
    Shape,
    Tile,
    Value,
    Written,
    constant,
    ctype,
    values,
)

Coords = Callable[[Emitter, Index, str], Sequence[str]]


def accumulate(e: Emitter, kind: str, x: str, y: str, acc: str) -> None:
    e.line(f"{acc} = fmaf({x}, {y}, {acc});" if kind == "float" else f"{acc} += {x} * {y};")


def contraction(
    x: Value, y: Value, shape: Shape, size: Dim, of_x: Coords, of_y: Coords, name: str
) -> Written:
    """Sum over k of x * y, each read where ``of_x`` and ``of_y`` say."""
    require(x.dtype == y.dtype, "a product of two types")
    kind = ctype(x.dtype)

    def write(e: Emitter, i: Index) -> str:
        for dim in range(len(shape)):
            i.coord(dim)
        acc = e.declare(kind, "acc", number(0, x.dtype).text)
        e.block.own.discard(acc)
        with e.inside(f"for (int k = 0; k < {e.size(size)}; ++k)"):
            left = e.value(x, at(x.shape, list(of_x(e, i, "k"))))
            right = e.value(y, at(y.shape, list(of_y(e, i, "k"))))
            accumulate(e, kind, left, right, acc)
        return acc

    return Written(shape=shape, dtype=x.dtype, args=(x, y), write=write, heavy=True, repeats=True, name=name)


def matmul(x: Value, y: Value) -> Value:
    """As ``torch.matmul``."""
    if len(x.shape) == 1 and len(y.shape) == 1:
        return total(point("{0} * {1}", x, y, dtype=x.dtype), (0,), False)
    if len(x.shape) == 1:
        out = matmul(reshape(x, [1, x.shape[0].value]), y)
        return reshape(out, [*values(out.shape)[:-2], out.shape[-1].value])
    if len(y.shape) == 1:
        out = matmul(x, reshape(y, [y.shape[0].value, 1]))
        return reshape(out, values(out.shape)[:-1])
    batch = common_shape([x.shape[:-2], y.shape[:-2]])
    shape = (*batch, x.shape[-2], y.shape[-1])
    lead = len(batch)

    def of(value: Value, place: int) -> Coords:
        skip = lead - (len(value.shape) - 2)

        def coords(e: Emitter, i: Index, k: str) -> list[str]:
            head = [
                "0" if value.shape[d].value == 1 else i.coord(d + skip) for d in range(len(value.shape) - 2)
            ]
            row, column = i.coord(lead), i.coord(lead + 1)
            return [*head, row, k] if place == 0 else [*head, k, column]

        return coords

    out = contraction(x, y, shape, x.shape[-1], of(x, 0), of(y, 1), "matmul")
    if lead == 0:
        out.tile = Tile(x.shape[-1], lambda row, k: [row, k], lambda col, k: [k, col], False)
    return out


@handles("matmul", "mm", "bmm", "mv", "dot", "inner", "vdot", "linalg_matmul")
def matmul_(a: Arguments) -> Value:
    x: Any = getattr(a, "self_", None) or getattr(a, "input", None)
    y = next(getattr(a, n) for n in ("mat2", "vec", "other", "tensor") if hasattr(a, n))
    if a.operator == "inner" and len(y.shape) > 1:
        y = permute(y, [*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2])
    return matmul(x, y)


@handles("linear")
def linear(a: Arguments) -> Value:
    rank = len(a.input.shape)
    require(rank >= 1, "linear")
    _same_size(a.weight, 1, a.input.shape[-1])
    shape = (*a.input.shape[:-1], a.weight.shape[0])
    out = contraction(
        a.input, a.weight, shape, a.input.shape[-1],
        lambda e, i, k: [*i.coords()[:-1], k], lambda e, i, k: [i.coord(rank - 1), k], "linear",
    )  # fmt: skip
    if rank == 2:
        out.tile = Tile(a.input.shape[-1], lambda row, k: [row, k], lambda col, k: [col, k], True)
    return out if a.bias is None else point("{0} + {1}", out, a.bias, dtype=a.out_dtype)


def _same_size(weight: Value, dim: int, size: Dim) -> None:
    """Let a weight's size go by the name of the equal size of the input."""
    if isinstance(weight, Buffer) and not size.literal and weight.shape[dim].value == size.value:
        weight.shape = (*weight.shape[:dim], size, *weight.shape[dim + 1 :])


def _scaled(value: Value, factor: float) -> Value:
    return value if factor == 1 else point("{0} * {1}", value, factor, dtype=value.dtype)


@handles("addmm", "baddbmm", "addmv", "addbmm", "addr")
def addmm(a: Arguments) -> Value:
    require(a.operator != "addbmm", "operator addbmm")
    if a.operator == "addr":
        product = point("{0} * {1}", reshape(a.vec1, [a.vec1.shape[0].value, 1]), a.vec2, dtype=a.out_dtype)
    else:
        x = next(getattr(a, n) for n in ("mat1", "batch1", "mat") if hasattr(a, n))
        y = next(getattr(a, n) for n in ("mat2", "batch2", "vec") if hasattr(a, n))
        product = matmul(x, y)
    product = _scaled(product, a.alpha)
    return (
        product if a.beta == 0 else point("{0} + {1}", product, _scaled(a.self_, a.beta), dtype=a.out_dtype)
    )


@handles("outer", "ger")
def outer(a: Arguments) -> Value:
    other: Any = getattr(a, "vec2", None)
    return point("{0} * {1}", reshape(a.self_, [a.self_.shape[0].value, 1]), other, dtype=a.out_dtype)


@handles("einsum")
def einsum(a: Arguments) -> Value:
    left, arrow, result = a.equation.replace(" ", "").partition("->")
    require("." not in left and len(a.tensors) <= 2, "einsum of more than two tensors")
    parts = left.split(",")
    require(all(len(set(p)) == len(p) for p in parts), "einsum with a diagonal")
    if not arrow:
        letters = left.replace(",", "")
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    sizes: dict[str, Dim] = {}
    for letters, tensor in zip(parts, a.tensors, strict=True):
        for letter, dim in zip(letters, tensor.shape, strict=True):
            sizes.setdefault(letter, dim)
    summed = [c for c in sizes if c not in result]
    shape = tuple(sizes[c] for c in result)

    def spread(tensor: Value, letters: str, order: str) -> Value:
        kept_ = [c for c in order if c in letters]
        turned = permute(tensor, [letters.index(c) for c in kept_])
        return expand(
            reshape(turned, [sizes[c].value if c in letters else 1 for c in order]),
            tuple(sizes[c] for c in order),
        )

    if len(a.tensors) == 2 and len(summed) == 1:
        k = summed[0]

        def of(letters: str) -> Coords:
            return lambda e, i, name: [name if c == k else i.coord(result.index(c)) for c in letters]

        x, y = a.tensors
        if k in parts[0] and k in parts[1]:
            return contraction(x, y, shape, sizes[k], of(parts[0]), of(parts[1]), "einsum")
    order = result + "".join(summed)
    spread_ = [spread(t, p, order) for t, p in zip(a.tensors, parts, strict=True)]
    product = spread_[0] if len(spread_) == 1 else point("{0} * {1}", *spread_, dtype=a.out_dtype)
    if not summed:
        return product
    return total(product, tuple(range(len(result), len(order))), False)


@handles("bilinear")
def bilinear(a: Arguments) -> Value:
    require(len(a.input1.shape) == 2, "bilinear")
    x, y, w = a.input1, a.input2, a.weight
    shape = (x.shape[0], w.shape[0])
    kind = ctype(x.dtype)

    def write(e: Emitter, i: Index) -> str:
        row, column = i.coords()
        acc = e.declare(kind, "acc", "0.0f")
        e.block.own.discard(acc)
        with (
            e.inside(f"for (int k = 0; k < {e.size(x.shape[1])}; ++k)"),
            e.inside(f"for (int m = 0; m < {e.size(y.shape[1])}; ++m)"),
        ):
            product = f"{e.value(x, at(x.shape, [row, 'k']))} * {e.value(w, at(w.shape, [column, 'k', 'm']))}"
            accumulate(e, kind, product, e.value(y, at(y.shape, [row, "m"])), acc)
        return acc

    out = Written(shape=shape, dtype=x.dtype, args=(x, y, w), write=write, heavy=True, name="bilinear")
    return out if a.bias is None else point("{0} + {1}", out, a.bias, dtype=a.out_dtype)


@handles("scaled_dot_product_attention")
def attention(a: Arguments) -> Value:
    require(not a.is_causal and not a.dropout_p, "causal attention")
    q, k, v = a.query, a.key, a.value
    rank = len(k.shape)
    scores = matmul(q, permute(k, [*range(rank - 2), rank - 1, rank - 2]))
    if a.scale is None:
        scores = point("{0} * rsqrtf({1})", scores, columns(q, (len(q.shape) - 1,)), dtype=a.out_dtype)
    else:
        scores = point("{0} * {1}", scores, a.scale, dtype=a.out_dtype)
    if a.attn_mask is not None:
        require(a.attn_mask.dtype == a.out_dtype, "attention with a mask of booleans")
        scores = point("{0} + {1}", scores, a.attn_mask, dtype=a.out_dtype)
    return matmul(softmax(scores, -1), v)


@handles("cdist", "_cdist_forward")
def cdist(a: Arguments) -> Value:
    x, y, p = a.x1, a.x2, a.p
    require(len(x.shape) == len(y.shape) and p in (1, 2), "cdist")
    rank = len(x.shape)
    shape = (*x.shape[:-1], y.shape[-2])

    def write(e: Emitter, i: Index) -> str:
        head = i.coords()
        acc = e.declare("float", "acc", "0.0f")
        e.block.own.discard(acc)
        with e.inside(f"for (int k = 0; k < {e.size(x.shape[-1])}; ++k)"):
            left = e.value(x, at(x.shape, [*head[: rank - 1], "k"]))
            right = e.value(y, at(y.shape, [*head[: rank - 2], head[rank - 1], "k"]))
            gap = e.declare("float", "gap", f"{left} - {right}")
            e.line(f"{acc} = fmaf({gap}, {gap}, {acc});" if p == 2 else f"{acc} += fabsf({gap});")
        return acc

    out = Written(shape=shape, dtype=a.out_dtype, args=(x, y), write=write, heavy=True, name="cdist")
    return point("sqrtf({0})", out, dtype=a.out_dtype) if p == 2 else out


# -- convolutions


def _listed(value: Any, rank: int) -> list[int]:
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


@handles("conv1d", "conv2d", "conv3d", "convolution")
def convolution(a: Arguments) -> Value:
    x, w = a.input, a.weight
    if getattr(a, "transposed", False):
        return transposed(a)
    rank = len(w.shape) - 2
    if a.groups == 1:
        _same_size(w, 1, x.shape[1] if len(x.shape) == rank + 2 else x.shape[0])
    single = len(x.shape) == rank + 1
    if single:
        x = reshape(x, [1, *values(x.shape)])
    stride, dilation = _listed(a.stride, rank), _listed(a.dilation, rank)
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
        padding = _listed(a.padding, rank)
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
                offset = letter if dilation[d] == 1 else f"{letter} * {dilation[d]}"
                base = coords[2 + d] if stride[d] == 1 else f"{coords[2 + d]} * {stride[d]}"
                if coords[2 + d] == "0":
                    base = "0"
                text = base if size.value == 1 else offset if base == "0" else f"{base} + {offset}"
                if padding[d]:
                    text += f" - {padding[d]}"
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
    if a.bias is not None:
        out = point(
            "{0} + {1}", out, reshape(a.bias, [1, a.bias.shape[0].value, *[1] * rank]), dtype=a.out_dtype
        )
    return reshape(out, a.out_shape) if single else out


@handles("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed(a: Arguments) -> Value:
    x, w = a.input, a.weight
    rank = len(w.shape) - 2
    require(len(x.shape) == rank + 2, "conv_transpose without a batch")
    stride, dilation, padding = (_listed(v, rank) for v in (a.stride, a.dilation, a.padding))
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
    if a.bias is not None:
        out = point(
            "{0} + {1}", out, reshape(a.bias, [1, a.bias.shape[0].value, *[1] * rank]), dtype=a.out_dtype
        )
    return out
