"""Products of matrices: one thread an output element, a loop over what is summed."""

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
from dice_training.cuke.traced.reductions import total
from dice_training.cuke.traced.values import (
    Buffer,
    Dim,
    Shape,
    Tile,
    Value,
    Written,
    ctype,
    values,
)
from dice_training.cuke.traced.views import permute

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
    same_size(a.weight, 1, a.input.shape[-1])
    shape = (*a.input.shape[:-1], a.weight.shape[0])
    out = contraction(
        a.input, a.weight, shape, a.input.shape[-1],
        lambda e, i, k: [*i.coords()[:-1], k], lambda e, i, k: [i.coord(rank - 1), k], "linear",
    )  # fmt: skip
    if rank == 2:
        out.tile = Tile(a.input.shape[-1], lambda row, k: [row, k], lambda col, k: [col, k], True)
    return out if a.bias is None else point("{0} + {1}", out, a.bias, dtype=a.out_dtype)


def same_size(weight: Value, dim: int, size: Dim) -> None:
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
