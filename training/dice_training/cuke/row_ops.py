"""The operators over one dimension: how they are spelled in PyTorch and which reductions compute them.

A row operator is a list of phases; each phase reduces a term over the row and may derive one more statistic from
the result. ``{v}`` is the element, ``{n}`` the row's length, ``{e}`` the epsilon; other fields name statistics.
"""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Combine = Literal["sum", "max", "min", "prod"]


@dataclass(frozen=True)
class Phase:
    stat: str
    combine: Combine
    term: str
    hasty: str
    derived: str = ""
    """Name of the statistic computed once from this phase's result, if any."""
    formula: str = ""
    hasty_formula: str = ""


@dataclass(frozen=True)
class RowOp:
    name: str
    torch: tuple[str, ...]
    """``{d}`` the dimension, ``{k}`` the keepdim argument (with its comma), ``{w}`` ``{c}`` affine weight and bias."""
    phases: tuple[Phase, ...]
    result: str
    """Value written: for a reduction over statistics only, for a map over ``{v}`` too."""
    hasty: str
    numpy: Callable[[Any], Any]
    maps: bool = False
    modules: tuple[str, ...] = ()
    eps: tuple[float, ...] = ()
    last_only: bool = False
    """The PyTorch spelling works over the last dimension only."""
    affine: tuple[str, ...] = ()
    """Parameters of the module form, by role: ``weight``, ``bias``."""
    weight: float = 1.0
    special: str = ""
    """``argmax``/``argmin``/``cumsum``: written by their own schedule."""


def _log_sum_exp(x: Any) -> Any:
    peak = x.max(-1, keepdims=True)
    return peak + np.log(np.exp(x - peak).sum(-1, keepdims=True))


def _standard(x: Any, ddof: int = 1) -> Any:
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, ddof=ddof, keepdims=True) + 1e-6)


_SUM = Phase("total", "sum", "{v}", "{v}")
_MEAN = Phase("total", "sum", "{v}", "{v}", "mean", "{total} / {n}", "{total} / {n}")
_MAX = Phase("peak", "max", "{v}", "{v}")
_SQ = Phase("total", "sum", "{v} * {v}", "powf({v}, 2.0f)")
_DEV = Phase("sq", "sum", "({v} - {mean}) * ({v} - {mean})", "pow({v} - {mean}, 2)")
_EXPSUM = Phase("total", "sum", "expf({v} - {peak})", "exp({v} - {peak})")


def _dev(name: str, formula: str, hasty: str) -> Phase:
    return Phase(_DEV.stat, _DEV.combine, _DEV.term, _DEV.hasty, name, formula, hasty)


def _exp(name: str, formula: str) -> Phase:
    return Phase(_EXPSUM.stat, _EXPSUM.combine, _EXPSUM.term, _EXPSUM.hasty, name, formula, "")


_SPELL_REDUCE = "torch.{f}({{x}}, dim={{d}}{{k}})", "{{x}}.{f}(dim={{d}}{{k}})"


def _reduce(f: str) -> tuple[str, ...]:
    return tuple(s.format(f=f) for s in _SPELL_REDUCE)


_LN_MANUAL = (
    "mean = {x}.mean(dim={d}, keepdim=True)\nvar = {x}.var(dim={d}, keepdim=True, unbiased=False)\n"
    "({x} - mean) / torch.sqrt(var + {e})"
)

ROW_OPS: dict[str, RowOp] = {
    op.name: op
    for op in [
        RowOp("sum", _reduce("sum"), (_SUM,), "{total}", "{total}", lambda x: x.sum(-1, keepdims=True), weight=1.6),
        RowOp("mean", _reduce("mean"), (_SUM,), "{total} / {n}", "{total} / (double){n}", lambda x: x.mean(-1, keepdims=True), weight=1.6),
        RowOp("max", ("torch.max({x}, dim={d}{k})[0]", "torch.max({x}, dim={d}{k}).values", "torch.amax({x}, dim={d}{k})", "{x}.amax(dim={d}{k})",
                      "{x}.max(dim={d}{k})[0]"), (_MAX,), "{peak}", "{peak}", lambda x: x.max(-1, keepdims=True), weight=1.5),
        RowOp("min", ("torch.min({x}, dim={d}{k})[0]", "torch.min({x}, dim={d}{k}).values", "torch.amin({x}, dim={d}{k})", "{x}.min(dim={d}{k})[0]"),
              (Phase("low", "min", "{v}", "{v}"),), "{low}", "{low}", lambda x: x.min(-1, keepdims=True), weight=1.2),
        RowOp("prod", ("torch.prod({x}, dim={d}{k})", "{x}.prod(dim={d}{k})"), (Phase("total", "prod", "{v}", "{v}"),), "{total}", "{total}",
              lambda x: x.prod(-1, keepdims=True), weight=0.5),
        RowOp("var", _reduce("var"), (_MEAN, _DEV), "{sq} / ({n} - 1)", "{sq} / ({n} - 1)", lambda x: x.var(-1, ddof=1, keepdims=True)),
        RowOp("var_biased", ("torch.var({x}, dim={d}, unbiased=False{k})", "{x}.var(dim={d}, unbiased=False{k})"), (_MEAN, _DEV), "{sq} / {n}",
              "{sq} / {n}", lambda x: x.var(-1, keepdims=True), weight=0.7),
        RowOp("std", _reduce("std"), (_MEAN, _DEV), "sqrtf({sq} / ({n} - 1))", "sqrt({sq} / ({n} - 1))", lambda x: x.std(-1, ddof=1, keepdims=True)),
        RowOp("l1_norm", ("torch.norm({x}, p=1, dim={d}{k})", "{x}.abs().sum(dim={d}{k})", "{x}.norm(p=1, dim={d}{k})", "torch.sum(torch.abs({x}), dim={d}{k})"),
              (Phase("total", "sum", "fabsf({v})", "fabs({v})"),), "{total}", "{total}", lambda x: np.abs(x).sum(-1, keepdims=True), weight=0.9),
        RowOp("l2_norm", ("torch.norm({x}, p=2, dim={d}{k})", "torch.norm({x}, dim={d}{k})", "{x}.norm(dim={d}{k})", "{x}.norm(p=2, dim={d}{k})",
                          "torch.linalg.vector_norm({x}, dim={d}{k})", "torch.sqrt(({x} * {x}).sum(dim={d}{k}))", "{x}.pow(2).sum(dim={d}{k}).sqrt()"), (_SQ,), "sqrtf({total})", "sqrt({total})",
              lambda x: np.sqrt((x * x).sum(-1, keepdims=True))),
        RowOp("mean_square", ("torch.mean({x} ** 2, dim={d}{k})", "{x}.pow(2).mean(dim={d}{k})", "torch.mean(torch.square({x}), dim={d}{k})"), (_SQ,),
              "{total} / {n}", "{total} / {n}", lambda x: (x * x).mean(-1, keepdims=True), weight=0.7),
        RowOp("logsumexp", ("torch.logsumexp({x}, dim={d}{k})", "{x}.logsumexp(dim={d}{k})"), (_MAX, _EXPSUM), "{peak} + logf({total})",
              "{peak} + log({total})", _log_sum_exp, weight=1.4),
        RowOp("argmax", ("torch.argmax({x}, dim={d}{k})", "{x}.argmax(dim={d}{k})"), (), "", "", lambda x: x.argmax(-1)[..., None] * 1.0, weight=0.7, special="argmax"),
        RowOp("argmin", ("torch.argmin({x}, dim={d}{k})", "{x}.argmin(dim={d}{k})"), (), "", "", lambda x: x.argmin(-1)[..., None] * 1.0, weight=0.5, special="argmin"),
        RowOp("softmax", ("torch.softmax({x}, dim={d})", "F.softmax({x}, dim={d})", "{x}.softmax(dim={d})"), (_MAX, _exp("inv", "1.0f / {total}")),
              "expf({v} - {peak}) * {inv}", "exp({v} - {peak}) / {total}", lambda x: np.exp(x - _log_sum_exp(x)), True, ("nn.Softmax(dim={d})",), weight=2.4),
        RowOp("log_softmax", ("torch.log_softmax({x}, dim={d})", "F.log_softmax({x}, dim={d})"), (_MAX, _exp("lse", "logf({total})")),
              "{v} - {peak} - {lse}", "{v} - {peak} - log({total})", lambda x: x - _log_sum_exp(x), True, ("nn.LogSoftmax(dim={d})",), weight=1.6),
        RowOp("softmin", ("F.softmin({x}, dim={d})", "torch.softmax(-{x}, dim={d})"),
              (Phase("low", "min", "{v}", "{v}"), Phase("total", "sum", "expf({low} - {v})", "exp({low} - {v})", "inv", "1.0f / {total}")),
              "expf({low} - {v}) * {inv}", "exp({low} - {v}) / {total}", lambda x: np.exp(-x - _log_sum_exp(-x)), True, ("nn.Softmin(dim={d})",), weight=0.8),
        RowOp("layer_norm", ("F.layer_norm({x}, ({D},){E})", "F.layer_norm({x}, {x}.shape[-1:]{E})", "F.layer_norm({x}, [{D}]{E})", _LN_MANUAL),
              (_MEAN, _dev("rstd", "rsqrtf({sq} / {n} + {e})", "1.0 / sqrt({sq} / {n} + {e})")), "({v} - {mean}) * {rstd}", "({v} - {mean}) * {rstd}",
              lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), True, ("nn.LayerNorm({D}{E}, elementwise_affine=False)",),
              eps=(1e-5, 1e-5, 1e-5, 1e-6, 1e-3), last_only=True, weight=1.2),
        RowOp("layer_norm_affine", ("F.layer_norm({x}, ({D},), {w}, {c}{E})", "F.layer_norm({x}, ({D},), weight={w}, bias={c}{E})", _LN_MANUAL + " * {w} + {c}"),
              (_MEAN, _dev("rstd", "rsqrtf({sq} / {n} + {e})", "1.0 / sqrt({sq} / {n} + {e})")), "({v} - {mean}) * {rstd} * {w} + {c}",
              "({v} - {mean}) * {rstd} * {w} + {c}",
              lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), True, ("nn.LayerNorm({D}{E})",), eps=(1e-5, 1e-5, 1e-5, 1e-6, 1e-3),
              last_only=True, affine=("weight", "bias"), weight=1.6),
        RowOp("rms_norm", ("{x} * torch.rsqrt(torch.mean({x} ** 2, dim={d}, keepdim=True) + {e})",
                           "{x} / torch.sqrt({x}.pow(2).mean(dim={d}, keepdim=True) + {e})",
                           "rms = torch.sqrt(torch.mean({x} * {x}, dim={d}, keepdim=True) + {e})\n{x} / rms",
                           "{x} / ({x}.square().mean(dim={d}, keepdim=True) + {e}).sqrt()"),
              (Phase("total", "sum", "{v} * {v}", "powf({v}, 2.0f)", "rstd", "rsqrtf({total} / {n} + {e})", "1.0 / sqrt({total} / {n} + {e})"),),
              "{v} * {rstd}", "{v} * {rstd}", lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), True, eps=(1e-5, 1e-6, 1e-8), weight=1.4),
        RowOp("rms_norm_affine", ("{x} * torch.rsqrt({x}.pow(2).mean(dim={d}, keepdim=True) + {e}) * {w}",
                                  "{w} * ({x} / torch.sqrt(torch.mean({x} ** 2, dim={d}, keepdim=True) + {e}))",
                                  "variance = {x}.pow(2).mean({d}, keepdim=True)\n{w} * ({x} * torch.rsqrt(variance + {e}))",
                                  "F.rms_norm({x}, ({D},), {w}, {e})", "F.rms_norm({x}, ({D},), weight={w}, eps={e})",
                                  "{x} / ({x}.pow(2).mean(dim={d}, keepdim=True) + {e}).sqrt() * {w}",
                                  "{x} * ({x} * {x}).mean(dim={d}, keepdim=True).add({e}).rsqrt() * {w}"),
              (Phase("total", "sum", "{v} * {v}", "powf({v}, 2.0f)", "rstd", "rsqrtf({total} / {n} + {e})", "1.0 / sqrt({total} / {n} + {e})"),),
              "{v} * {rstd} * {w}", "{v} * {rstd} * {w}", lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), True, eps=(1e-5, 1e-6),
              last_only=True, affine=("weight",), weight=1.2),
        RowOp("l2_normalize", ("F.normalize({x}, p=2, dim={d})", "F.normalize({x}, dim={d})", "F.normalize({x}, p=2.0, dim={d})"),
              (Phase("total", "sum", "{v} * {v}", "powf({v}, 2.0f)", "inv", "1.0f / fmaxf(sqrtf({total}), 1e-12f)"),),
              "{v} * {inv}", "{v} / fmaxf(sqrt({total}), 1e-12f)", lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)), True, weight=1.2),
        RowOp("l1_normalize", ("F.normalize({x}, p=1, dim={d})", "F.normalize({x}, p=1.0, dim={d})"),
              (Phase("total", "sum", "fabsf({v})", "fabs({v})", "inv", "1.0f / fmaxf({total}, 1e-12f)"),),
              "{v} * {inv}", "{v} / fmaxf({total}, 1e-12f)", lambda x: x / np.abs(x).sum(-1, keepdims=True), True, weight=0.8),
        RowOp("standardize", ("({x} - {x}.mean(dim={d}, keepdim=True)) / ({x}.std(dim={d}, keepdim=True) + {e})",
                              "mean = {x}.mean(dim={d}, keepdim=True)\nstd = {x}.std(dim={d}, keepdim=True)\n({x} - mean) / (std + {e})"),
              (_MEAN, _dev("inv", "1.0f / (sqrtf({sq} / ({n} - 1)) + {e})", "")), "({v} - {mean}) * {inv}",
              "({v} - {mean}) / (sqrt({sq} / ({n} - 1)) + {e})", _standard, True, eps=(1e-5, 1e-6), weight=1.0),
        RowOp("center", ("{x} - {x}.mean(dim={d}, keepdim=True)", "{x} - torch.mean({x}, dim={d}, keepdim=True)"), (_MEAN,), "{v} - {mean}",
              "{v} - {total} / {n}", lambda x: x - x.mean(-1, keepdims=True), True, weight=1.0),
        RowOp("sub_max", ("{x} - {x}.max(dim={d}, keepdim=True)[0]", "{x} - torch.amax({x}, dim={d}, keepdim=True)",
                          "{x} - {x}.max(dim={d}, keepdim=True).values"), (_MAX,), "{v} - {peak}", "{v} - {peak}", lambda x: x - x.max(-1, keepdims=True), True, weight=0.8),
        RowOp("cumsum", ("torch.cumsum({x}, dim={d})", "{x}.cumsum(dim={d})"), (), "", "", lambda x: x.cumsum(-1), True, weight=0.6, special="cumsum"),
    ]
}  # fmt: skip
