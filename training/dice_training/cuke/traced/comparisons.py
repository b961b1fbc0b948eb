"""Comparisons, logic, bits, and choices by a condition."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import torch

from dice_training.cuke.traced.lower import (
    Arguments,
    cast,
    common_shape,
    expand,
    handles,
    number,
    point,
)
from dice_training.cuke.traced.values import Point, Unwritten, Value


def _dtype_of(*values: Any) -> torch.dtype:
    """The type in which values and numbers meet."""
    made = [torch.empty([1] * len(v.shape), dtype=v.dtype) if isinstance(v, Value) else v for v in values]
    result = made[0].dtype if isinstance(made[0], torch.Tensor) else torch.result_type(made[0], made[-1])
    for other in made[1:]:
        result = torch.result_type(
            torch.empty(() if not isinstance(made[0], torch.Tensor) else made[0].shape, dtype=result), other
        )
    return result


def _compare(sign: str) -> Any:
    return lambda a: point(
        f"{{0}} {sign} {{1}}", a.self_, a.other, dtype=torch.bool, like=_dtype_of(a.self_, a.other)
    )


for _names, _sign in (("gt greater", ">"), ("lt less", "<"), ("ge greater_equal", ">="), ("le less_equal", "<="), ("eq", "=="), ("ne not_equal", "!=")):  # fmt: skip
    handles(*_names.split())(_compare(_sign))


def _logic(template: str) -> Any:
    return lambda a: point(template, a.self_, a.other, dtype=torch.bool)


for _name, _template in {
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_xor": "{0} != {1}",
}.items():
    handles(_name)(_logic(_template))


@handles("logical_not")
def logical_not(a: Arguments) -> Value:
    return point("!{0}", a.self_, dtype=torch.bool)


@handles("bitwise_not")
def bitwise_not(a: Arguments) -> Value:
    return point("!{0}" if a.out_dtype == torch.bool else "~{0}", a.self_, dtype=a.out_dtype)


def _bits(integers: str, booleans: str) -> Any:
    return lambda a: point(
        booleans if a.out_dtype == torch.bool else integers, a.self_, a.other, dtype=a.out_dtype
    )


for _names, _integers, _booleans in (("bitwise_and __and__", "{0} & {1}", "{0} && {1}"), ("bitwise_or __or__", "{0} | {1}", "{0} || {1}"),
                                     ("bitwise_xor __xor__", "{0} ^ {1}", "{0} != {1}"), ("bitwise_left_shift __lshift__", "{0} << {1}", ""),
                                     ("bitwise_right_shift __rshift__", "{0} >> {1}", "")):  # fmt: skip
    handles(*_names.split())(_bits(_integers, _booleans))

_TESTS = {"isnan": "isnan({0})", "isinf": "isinf({0})", "isfinite": "isfinite({0})", "isneginf": "{0} == -INFINITY", "isposinf": "{0} == INFINITY",
          "signbit": "signbit({0})"}  # fmt: skip


def _test(template: str, of_integers: bool) -> Any:
    def handler(a: Arguments) -> Value:
        if not a.self_.dtype.is_floating_point:
            return number(of_integers, torch.bool, a.self_.shape)
        return point(template, a.self_, dtype=torch.bool, like=a.self_.dtype)

    return handler


for _name, _template in _TESTS.items():
    handles(_name)(_test(_template, _name == "isfinite"))


@handles("isclose")
def isclose(a: Arguments) -> Value:
    return point(
        "fabsf({0} - {1}) <= {2} + {3} * fabsf({1})",
        a.self_,
        a.other,
        a.atol,
        a.rtol,
        dtype=torch.bool,
        like=a.self_.dtype,
    )


@handles("where")
def where(a: Arguments) -> Value:
    if not hasattr(a, "other"):
        raise Unwritten("operator nonzero")
    condition = cast(a.condition, torch.bool)
    chosen = [
        cast(v, a.out_dtype) if isinstance(v, Value) else number(v, a.out_dtype) for v in (a.self_, a.other)
    ]
    return _choose(condition, *chosen)


def _choose(condition: Value, yes: Value, no: Value) -> Value:
    shape = common_shape([condition.shape, yes.shape, no.shape])
    args = tuple(expand(v, shape) for v in (condition, yes, no))
    return Point(shape=shape, dtype=yes.dtype, template="{0} ? {1} : {2}", args=args, name="where")


@handles("masked_fill")
def masked_fill(a: Arguments) -> Value:
    fill = cast(a.value, a.out_dtype) if isinstance(a.value, Value) else number(a.value, a.out_dtype)
    return _choose(a.mask, fill, a.self_)
