"""Look-ups in a list: membership and buckets."""

from __future__ import annotations

from math import prod

import torch

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import Arguments, cast, handles, point, require, reshape
from dice_training.cuke.traced.values import Value, Written, values


@handles("isin")
def isin(a: Arguments) -> Value:
    require(isinstance(a.elements, Value) and isinstance(a.test_elements, Value), "isin of a number")
    value = a.elements
    tests = reshape(a.test_elements, [prod(values(a.test_elements.shape))])
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
