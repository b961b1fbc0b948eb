"""Types and copies, and tensors of numbers."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

from dice_training.cuke.traced.lower import (
    Arguments,
    cast,
    expand,
    handles,
    number,
    require,
)
from dice_training.cuke.traced.values import Value, Written, constant


@handles("to", "_to_copy", "type_as")
def to(a: Arguments) -> Value:
    return cast(a.self_, a.out_dtype)


@handles("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "lift_fresh", "dropout", "feature_dropout", "alpha_dropout",
         "native_dropout", "detach_copy", "positive", "resolve_conj", "resolve_neg", "conj", "real", "_conj")  # fmt: skip
def same(a: Arguments) -> Value:
    require(not getattr(a, "train", False), "dropout in training")
    return a.self_ if hasattr(a, "self_") else a.input


@handles("copy")
def copy(a: Arguments) -> Value:
    return expand(cast(a.src, a.out_dtype), a.self_.shape)


# -- tensors of numbers


def _like(fill: float | None) -> Any:
    def handler(a: Arguments) -> Value:
        value = (
            fill if fill is not None else getattr(a, "fill_value", getattr(a, "value", getattr(a, "s", None)))
        )
        require(isinstance(value, int | float), "a fill that is computed")
        source = getattr(a, "self_", None)
        shape = source.shape if isinstance(source, Value) and len(source.shape) == len(a.out_shape) else ()
        if tuple(d.value for d in shape) != a.out_shape:
            shape = tuple(constant(size) for size in a.out_shape)
        return number(value, a.out_dtype, shape)  # type: ignore[arg-type]

    return handler


handles("zeros_like", "zeros", "new_zeros", "zero")(_like(0.0))
handles("ones_like", "ones", "new_ones")(_like(1.0))
handles("full_like", "full", "new_full", "scalar_tensor", "fill")(_like(None))


@handles("arange")
def arange(a: Arguments) -> Value:
    start, step = getattr(a, "start", 0) or 0, getattr(a, "step", 1) or 1
    size = (constant(a.out_shape[0]),)
    kind = "" if not a.out_dtype.is_floating_point else "(float)"

    def write(e: Any, index: Any) -> str:
        text = f"{kind}{index.coord(0)}"
        if step != 1:
            text += f" * {number(step, a.out_dtype).text}"
        return text if start == 0 else f"{text} + {number(start, a.out_dtype).text}"

    return Written(shape=size, dtype=a.out_dtype, args=(), write=write)


@handles("linspace")
def linspace(a: Arguments) -> Value:
    step = (a.end - a.start) / max(1, a.steps - 1)

    def write(e: Any, index: Any) -> str:
        return f"{number(a.start, a.out_dtype).text} + {index.coord(0)} * {number(step, a.out_dtype).text}"

    return Written(shape=(constant(a.steps),), dtype=a.out_dtype, args=(), write=write)


@handles("eye")
def eye(a: Arguments) -> Value:
    shape = tuple(constant(size) for size in a.out_shape)
    one, zero = number(1, a.out_dtype).text, number(0, a.out_dtype).text
    return Written(
        shape=shape,
        dtype=a.out_dtype,
        args=(),
        write=lambda e, i: f"{i.coord(0)} == {i.coord(1)} ? {one} : {zero}",
    )
