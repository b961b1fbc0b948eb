"""Losses."""

from __future__ import annotations

from dice_training.cuke.traced.gathers import gather
from dice_training.cuke.traced.lower import (
    Arguments,
    Handler,
    handles,
    point,
    require,
    reshape,
)
from dice_training.cuke.traced.norms import log_softmax
from dice_training.cuke.traced.reductions import mean, norm, total
from dice_training.cuke.traced.values import (
    Value,
    values,
)


def _loss(value: Value, reduction: int) -> Value:
    """``reduction``: 0 none, 1 mean, 2 sum."""
    every = tuple(range(len(value.shape)))
    return (
        value
        if reduction == 0
        else mean(value, every, False)
        if reduction == 1
        else total(value, every, False)
    )


_PLAIN: dict[str, tuple[str, tuple[str, ...]]] = {
    "l1_loss": ("fabsf({0} - {1})", ("self_", "target")),
    "soft_margin_loss": ("log1pf(expf(-{1} * {0}))", ("self_", "target")),
    "hinge_embedding_loss": ("{1} == 1.0f ? {0} : fmaxf({2} - {0}, 0.0f)", ("self_", "target", "margin")),
    "margin_ranking_loss": (
        "fmaxf(-{2} * ({0} - {1}) + {3}, 0.0f)",
        ("input1", "input2", "target", "margin"),
    ),
}
"""Losses of one expression, and the arguments that stand in it."""


def _plain(template: str, arguments: tuple[str, ...]) -> Handler:
    return lambda a: _loss(
        point(template, *(getattr(a, name) for name in arguments), dtype=a.out_dtype), a.reduction
    )


for _name, _parts in _PLAIN.items():
    handles(_name)(_plain(*_parts))


def _of_gap(template: str, bound: str) -> Handler:
    """A loss of the distance between value and target; ``bound`` names the argument where it changes."""

    def handler(a: Arguments) -> Value:
        gap = point("fabsf({0} - {1})", a.self_, a.target, dtype=a.out_dtype)
        return _loss(point(template, gap, getattr(a, bound), dtype=a.out_dtype), a.reduction)

    return handler


handles("smooth_l1_loss")(_of_gap("{0} < {1} ? 0.5f * {0} * {0} / {1} : {0} - 0.5f * {1}", "beta"))
handles("huber_loss")(_of_gap("{0} <= {1} ? 0.5f * {0} * {0} : {1} * ({0} - 0.5f * {1})", "delta"))


@handles("mse_loss")
def mse_loss(a: Arguments) -> Value:
    difference = point("{0} - {1}", a.self_, a.target, dtype=a.out_dtype)
    return _loss(point("{0} * {0}", difference, dtype=a.out_dtype), a.reduction)


def _weighted(out: Value, a: Arguments) -> Value:
    return _loss(
        out if a.weight is None else point("{0} * {1}", out, a.weight, dtype=a.out_dtype), a.reduction
    )


@handles("binary_cross_entropy")
def binary_cross_entropy(a: Arguments) -> Value:
    out = point(
        "-({1} * fmaxf(logf({0}), -100.0f) + (1.0f - {1}) * fmaxf(log1pf(-{0}), -100.0f))",
        a.self_,
        a.target,
        dtype=a.out_dtype,
    )
    return _weighted(out, a)


@handles("binary_cross_entropy_with_logits")
def bce_with_logits(a: Arguments) -> Value:
    require(a.pos_weight is None, "pos_weight")
    out = point(
        "fmaxf({0}, 0.0f) - {0} * {1} + log1pf(expf(-fabsf({0})))", a.self_, a.target, dtype=a.out_dtype
    )
    return _weighted(out, a)


@handles("kl_div")
def kl_div(a: Arguments) -> Value:
    if a.log_target:
        out = point("expf({1}) * ({1} - {0})", a.self_, a.target, dtype=a.out_dtype)
    else:
        out = point("{1} > 0.0f ? {1} * (logf({1}) - {0}) : 0.0f", a.self_, a.target, dtype=a.out_dtype)
    return _loss(out, a.reduction)


@handles("poisson_nll_loss")
def poisson_nll_loss(a: Arguments) -> Value:
    require(not a.full, "poisson_nll_loss with full")
    template = "expf({0}) - {1} * {0}" if a.log_input else "{0} - {1} * logf({0} + {2})"
    return _loss(
        point(template, a.input, a.target, *([] if a.log_input else [a.eps]), dtype=a.out_dtype), a.reduction
    )


@handles("triplet_margin_loss")
def triplet_margin_loss(a: Arguments) -> Value:
    require(not a.swap, "triplet_margin_loss with swap")

    def distance(x: Value, y: Value) -> Value:
        difference = point("{0} - {1} + {2}", x, y, a.eps, dtype=a.out_dtype)
        return norm(difference, a.p, (len(difference.shape) - 1,), False)

    out = point(
        "fmaxf({0} - {1} + {2}, 0.0f)",
        distance(a.anchor, a.positive),
        distance(a.anchor, a.negative),
        a.margin,
        dtype=a.out_dtype,
    )
    return _loss(out, a.reduction)


@handles("cross_entropy_loss", "nll_loss_nd", "nll_loss")
def cross_entropy(a: Arguments) -> Value:
    require(a.weight is None and getattr(a, "label_smoothing", 0) == 0, "cross entropy with weights")
    scores = a.self_
    dim = 1 if len(scores.shape) > 1 else 0
    logs = log_softmax(scores, dim) if a.operator == "cross_entropy_loss" else scores
    if a.target.dtype.is_floating_point:
        rows = total(point("-{1} * {0}", logs, a.target, dtype=a.out_dtype), (dim,), False)
        return _loss(rows, a.reduction)
    a.dim, a.index, a.self_ = (
        dim,
        reshape(a.target, [1 if d == dim else s for d, s in enumerate(values(scores.shape))]),
        logs,
    )
    picked = reshape(gather(a), values(a.target.shape))
    return _loss(point("-{0}", picked, dtype=a.out_dtype), a.reduction)
