"""Is an output right? Comparison in float64 with tolerances from dtype, output scale and accumulation length.

An element passes when ``|actual - expected| <= rel * |expected| + rel * scale + abs``. ``scale`` is the typical
magnitude of the output (its RMS, but not more than a few times the median of its non-zero elements), so outputs that
are all tiny are held to their own size and not to a fixed constant. A second bound on the RMS of the error catches
arithmetic in a lower precision, which random inputs hide from a bound on single elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from dice_engine.source.plan import Tolerance
from dice_engine.verify.protocol import dtype_name

# Relative error that different but honest orders of arithmetic reach: about 800 ulp for float32, 10 ulp for half.
_BASE_REL = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}
_RMS_SHARE = 0.2
_UNCERTAIN_SHARE = 0.01
NOISE_CAP = 0.02


@dataclass(frozen=True)
class Check:
    """Outcome of comparing outputs. ``rule`` names a rule of the judge where the difference itself breaks one."""

    ok: bool
    rule: str | None = None
    reason: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0


@dataclass(frozen=True)
class Bounds:
    """Bounds for one output: ``rel`` relative and scale-relative, ``abs`` absolute, ``rms`` on the error's RMS.

    ``uncertain`` marks elements where the reference itself jumps when its inputs move by one rounding step (an
    argument of ``floor`` or of a comparison); they are not compared.
    """

    rel: float
    abs: float
    rms: float
    uncertain: torch.Tensor | None = None


def bounds(
    dtype: torch.dtype,
    accumulation: int = 1,
    biased: bool = False,
    noise: float = 0.0,
    override: Tolerance | None = None,
    uncertain: torch.Tensor | None = None,
) -> Bounds:
    """Bounds for an output computed in ``dtype`` from sums of about ``accumulation`` terms.

    ``biased``: the inputs are near-constant, so that rounding errors of a plain running sum add up instead of
    cancelling. ``noise``: the reference's own relative error (against float64 or under perturbed inputs).
    """
    if override is not None:
        return Bounds(override.rel, override.abs, math.inf, uncertain)
    eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    growth = accumulation / 2 if biased else 2 * math.sqrt(accumulation)
    base = max(_BASE_REL.get(dtype, 1e-2), min(eps * growth, NOISE_CAP))
    rel = max(base, min(8 * noise, NOISE_CAP))
    rms = max(base * _RMS_SHARE, min(eps * growth, NOISE_CAP) if biased else 0.0, min(4 * noise, NOISE_CAP))
    return Bounds(rel, 4 * torch.finfo(dtype).tiny if dtype.is_floating_point else 0.0, rms, uncertain)


def lowest_dtype(*values: Any) -> torch.dtype:
    """The least precise floating type among the tensors in ``values``; float32 where there is none."""
    dtypes = [tensor.dtype for _, tensor in tensors(list(values)) if tensor.dtype.is_floating_point]
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def tensors(value: Any, path: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in nested lists, tuples and dicts, with a path to each."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors(item, f"{path}[{index}]" if len(value) > 1 else path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{path}[{key!r}]" if path else str(key))


def scale(expected: torch.Tensor) -> float:
    """Typical magnitude of the finite elements: RMS, at most 8 times the median of the non-zero ones."""
    values = _as_float64(expected).abs()
    values = values[torch.isfinite(values) & (values > 0)]
    if not values.numel():
        return 0.0
    rms = float((values / values.max()).square().mean().sqrt() * values.max())
    return min(rms, 8 * float(_sample(values).median()))


def compare_tensor(
    expected: torch.Tensor, actual: torch.Tensor, limit: Bounds, name: str = "output"
) -> Check:
    """Compare one output. dtype and shape must be equal; integers and booleans exactly, masks of NaN and Inf too."""
    if actual.dtype != expected.dtype:
        what = f"{dtype_name(actual.dtype)} instead of {dtype_name(expected.dtype)}"
        return Check(False, None, f"{name} is {what}", math.inf, math.inf)
    if actual.shape != expected.shape:
        what = f"shape {list(actual.shape)} instead of {list(expected.shape)}"
        return Check(False, None, f"{name} has {what}", math.inf, math.inf)
    if not expected.numel():
        return Check(True)
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return _compare_exact(expected, actual, limit, name)
    want, got = _as_float64(expected), _as_float64(actual)
    compared = torch.ones_like(want, dtype=torch.bool)
    if limit.uncertain is not None and limit.uncertain.shape == compared.shape:
        compared &= ~limit.uncertain
    finite = torch.isfinite(want) & torch.isfinite(got)
    same_kind = (torch.isnan(want) & torch.isnan(got)) | (torch.isinf(want) & (want == got))
    odd = ~finite & ~same_kind & compared
    if bool(odd.any()):
        at = _first(odd)
        text = f"{name}{list(at)} is {float(got[at]):g} where the reference has {float(want[at]):g}"
        return Check(False, "nonfinite", text, math.inf, math.inf)
    compared &= finite
    error = torch.where(compared, (got - want).abs(), 0.0)
    size = scale(expected)
    allowed = limit.rel * want.abs() + limit.rel * size + limit.abs
    max_abs = float(error.max())
    max_rel = float((error / (want.abs() + size + limit.abs + 1e-300)).nan_to_num(0.0, 0.0, 0.0).max())
    wrong = compared & (error > allowed)
    if bool(wrong.any()):
        at = _first(wrong)
        share = int(wrong.sum()) / wrong.numel()
        text = (
            f"{name}{list(at)} is {float(got[at]):.8g}, the reference {float(want[at]):.8g} "
            f"({share:.2%} of the elements differ, largest error {max_abs:.3g})"
        )
        return Check(False, None, text, max_abs, max_rel)
    if size > 0 and math.isfinite(limit.rms):
        typical = float((error / size).square().mean().sqrt())
        if typical > limit.rms:
            text = (
                f"{name} has a typical error of {typical:.2g} of its scale, over {limit.rms:.2g}: "
                f"less precise than {dtype_name(expected.dtype)} arithmetic"
            )
            return Check(False, "narrowing", text, max_abs, max_rel)
    return Check(True, None, "", max_abs, max_rel)


def compare(expected: Any, actual: Any, limits: list[Bounds], name: str = "output") -> Check:
    """Compare nested outputs; ``limits`` holds one ``Bounds`` for each tensor of ``expected`` in order."""
    problem = _structure(expected, actual, name)
    if problem:
        return Check(False, None, problem, math.inf, math.inf)
    worst_abs = worst_rel = 0.0
    for (path, want), (_, got), limit in zip(tensors(expected, name), tensors(actual), limits, strict=True):
        check = compare_tensor(want, got, limit, path)
        worst_abs, worst_rel = max(worst_abs, check.max_abs), max(worst_rel, check.max_rel)
        if not check.ok:
            return Check(False, check.rule, check.reason, worst_abs, worst_rel)
    return Check(True, None, "", worst_abs, worst_rel)


def spread(expected: torch.Tensor, other: torch.Tensor) -> tuple[float, torch.Tensor | None]:
    """The reference's own uncertainty: ``other`` is the same output in float64 or from inputs moved by a rounding.

    Returns the largest relative difference and a mask of elements that jump (at most 1 % of them, else they count).
    """
    if other.shape != expected.shape or not expected.numel() or not expected.dtype.is_floating_point:
        return 0.0, None
    want, moved = _as_float64(expected), _as_float64(other)
    size = scale(expected)
    relative = ((moved - want).abs() / (want.abs() + size + 1e-300)).nan_to_num(1.0, 1.0, 1.0)
    relative = torch.where(torch.isfinite(want) | torch.isfinite(moved), relative, 0.0)
    jumps = relative > NOISE_CAP
    if not bool(jumps.any()):
        return float(relative.max()), None
    if int(jumps.sum()) > max(1, int(_UNCERTAIN_SHARE * jumps.numel())):
        return float(relative.max()), None
    return float(torch.where(jumps, 0.0, relative).max()), jumps


def identical(first: Any, second: Any) -> bool:
    """Bitwise equality of nested values."""
    one, two = list(tensors(first)), list(tensors(second))
    return len(one) == len(two) and all(same_bits(a, b) for (_, a), (_, b) in zip(one, two, strict=True))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.numel():
        return True
    return (
        torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        if a.dim()
        else (torch.equal(a.reshape(1).view(torch.uint8), b.reshape(1).view(torch.uint8)))
    )


def _structure(expected: Any, actual: Any, path: str) -> str:
    if isinstance(expected, torch.Tensor):
        return "" if isinstance(actual, torch.Tensor) else f"{path} is {_kind(actual)} instead of a tensor"
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            return f"{path} is {_kind(actual)} instead of {_kind(expected)}"
        pairs = zip(expected, actual, strict=True)
        return next(
            (text for i, (e, a) in enumerate(pairs) if (text := _structure(e, a, f"{path}[{i}]"))), ""
        )
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or set(actual) != set(expected):
            return f"{path} is {_kind(actual)} instead of {_kind(expected)}"
        return next(
            (text for k in expected if (text := _structure(expected[k], actual[k], f"{path}[{k!r}]"))), ""
        )
    if isinstance(expected, float) and isinstance(actual, int | float):
        close = math.isclose(expected, actual, rel_tol=1e-6) or (math.isnan(expected) and math.isnan(actual))
        return "" if close else f"{path} is {actual!r} instead of {expected!r}"
    return (
        ""
        if expected == actual and type(expected) is type(actual)
        else f"{path} is {actual!r} instead of {expected!r}"
    )


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'nothing'}"
    return repr(value)


def _compare_exact(expected: torch.Tensor, actual: torch.Tensor, limit: Bounds, name: str) -> Check:
    wrong = expected != actual
    if limit.uncertain is not None and limit.uncertain.shape == wrong.shape:
        wrong &= ~limit.uncertain
    if not bool(wrong.any()):
        return Check(True)
    at = _first(wrong)
    text = f"{name}{list(at)} is {actual[at].item()} where the reference has {expected[at].item()}"
    distance = float((actual.to(torch.float64) - expected.to(torch.float64)).abs().max())
    return Check(
        False, None, f"{text} ({int(wrong.sum())} of {wrong.numel()} elements differ)", distance, math.inf
    )


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor
    return tensor.to(torch.float64)


def _sample(values: torch.Tensor, most: int = 65536) -> torch.Tensor:
    flat = values.reshape(-1)
    return flat if flat.numel() <= most else flat[:: -(-flat.numel() // most)]


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(index) for index in mask.nonzero()[0])
