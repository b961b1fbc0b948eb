"""Attention, and distances between all rows of two tensors."""

from __future__ import annotations

from dice_training.cuke.traced.emit import Emitter, Index, at
from dice_training.cuke.traced.lower import (
    Arguments,
    handles,
    point,
    require,
)
from dice_training.cuke.traced.norms import softmax
from dice_training.cuke.traced.products import matmul
from dice_training.cuke.traced.reductions import columns
from dice_training.cuke.traced.values import (
    Value,
    Written,
)
from dice_training.cuke.traced.views import permute


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
