"""Is an output right? Comparison in float64 with tolerances from dtype, output scale and accumulation length.

An element passes when ``|actual - expected| <= rel * |expected| + rel * scale + abs``. ``scale`` is the typical
magnitude of the output (its RMS, but not more than a few times the median of its non-zero elements), so outputs that
are all tiny are held to their own size and not to a fixed constant. A second bound on the RMS of the error catches
arithmetic in a lower precision, which random inputs hide from a bound on single elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from dice_engine.source.plan import Tolerance
from dice_engine.verify.protocol import dtype_name

# Relative error that different but honest orders of arithmetic reach: about 800 ulp for float32, 10 ulp for half.
_BASE_REL = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 4e-2}
_RMS_SHARE = 0.2
_UNCERTAIN_SHARE = 0.01
NOISE_CAP = 0.02
_CHUNK = 32768
"""Elements handled at once: small enough that torch stays on one thread and temporaries stay in the cache."""


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
    scale: float | None = None
    """The output's typical magnitude where it is known already (see ``scale``)."""
    squares: float | None = None
    """What ``rms`` is a share of, where that is not the whole output: the sum of the squares of what counts."""


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
    grown = min(eps * growth(accumulation, biased), NOISE_CAP)
    base = max(_BASE_REL.get(dtype, 1e-2), grown)
    rel = max(base, min(8 * noise, NOISE_CAP))
    rms = max(base * _RMS_SHARE, grown if biased else 0.0, min(4 * noise, NOISE_CAP))
    return Bounds(rel, 4 * torch.finfo(dtype).tiny if dtype.is_floating_point else 0.0, rms, uncertain)


def growth(accumulation: int, biased: bool) -> float:
    """Rounding steps by which an honest sum of that many terms may be off (see ``bounds`` for ``biased``)."""
    return accumulation / 2 if biased else 2 * math.sqrt(accumulation)


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
    squares, count, largest = 0.0, 0, 0.0
    for (part,) in _chunks(expected):
        values = part.abs()
        values = values[torch.isfinite(values) & (values > 0)]
        if values.numel():
            largest = max(largest, float(values.max()))
            squares += float((values * 1e-150 if largest > 1e150 else values).square().sum())
            count += values.numel()
    if not count:
        return 0.0
    rms = (squares / count) ** 0.5 * (1e150 if largest > 1e150 else 1.0)
    sample = as_float64(_sample(expected)).abs()
    sample = sample[torch.isfinite(sample) & (sample > 0)]
    return min(rms, 8 * float(sample.median())) if sample.numel() else rms


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
    size = limit.scale if limit.scale is not None else scale(expected)
    seen = _Differences(limit.rel, limit.rel * size + limit.abs, size + limit.abs)
    uncertain = (
        limit.uncertain if limit.uncertain is not None and limit.uncertain.shape == expected.shape else None
    )
    tensors_of_chunk = (expected, actual) if uncertain is None else (expected, actual, uncertain)
    for want, got, *skip in _chunks(*tensors_of_chunk):
        seen.add(want, got, skip[0] != 0 if skip else None)
    if seen.odd is not None:
        at, want, got = seen.odd
        text = f"{name}{_index(at, expected)} is {got:g} where the reference has {want:g}"
        return Check(False, "nonfinite", text, math.inf, math.inf)
    if seen.wrong is not None:
        at, want, got = seen.wrong
        text = (
            f"{name}{_index(at, expected)} is {got:.8g}, the reference {want:.8g} "
            f"({seen.wrong_count / expected.numel():.2%} of the elements differ, largest error {seen.max_abs:.3g})"
        )
        return Check(False, None, text, seen.max_abs, seen.max_rel)
    squares = seen.expected_squares if limit.squares is None else limit.squares
    typical = math.sqrt(seen.squares / squares) if squares > 0 else 0.0
    if typical > limit.rms:
        text = (
            f"{name} has a typical error of {typical:.2g} of its scale, over {limit.rms:.2g}: "
            f"less precise than {dtype_name(expected.dtype)} arithmetic"
        )
        return Check(False, "narrowing", text, seen.max_abs, seen.max_rel)
    return Check(True, None, "", seen.max_abs, seen.max_rel)


class _Differences:
    """What chunks of two tensors showed so far; chunks keep temporaries in the cache and on one core."""

    def __init__(self, rel: float, floor: float, scale_floor: float):
        self.rel, self.floor, self.scale_floor = rel, floor, scale_floor
        self.max_abs = self.max_rel = self.squares = self.expected_squares = 0.0
        self.wrong_count = 0
        self.position = 0
        self.odd: tuple[int, float, float] | None = None
        """(flat index, expected, actual) of the first NaN or Inf that does not match."""
        self.wrong: tuple[int, float, float] | None = None

    def add(self, want: torch.Tensor, got: torch.Tensor, skip: torch.Tensor | None) -> None:
        error = (got - want).abs_()
        size = want.abs()
        # A NaN fails every comparison, so this also finds chunks that need the careful way.
        if skip is not None or not bool((error <= size * self.rel + self.floor).all()):
            error, size = self._careful(want, got, error, size, skip)
        self.max_abs = max(self.max_abs, float(error.max()))
        self.max_rel = max(self.max_rel, float((error / (size + (self.scale_floor + 1e-300))).max()))
        self.squares += float(error.square().sum())
        self.expected_squares += float(size.square().sum())
        self.position += want.numel()

    def _careful(
        self,
        want: torch.Tensor,
        got: torch.Tensor,
        error: torch.Tensor,
        size: torch.Tensor,
        skip: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        finite = torch.isfinite(want) & torch.isfinite(got)
        same = (torch.isnan(want) & torch.isnan(got)) | (torch.isinf(want) & (want == got))
        compared = finite if skip is None else finite & ~skip
        odd = ~finite & ~same if skip is None else ~finite & ~same & ~skip
        if self.odd is None and bool(odd.any()):
            at = int(odd.nonzero()[0])
            self.odd = (self.position + at, float(want[at]), float(got[at]))
        error = torch.where(compared, error, 0.0)
        size = torch.where(compared, size, 0.0)
        wrong = error > size * self.rel + self.floor
        if bool(wrong.any()):
            self.wrong_count += int(wrong.sum())
            if self.wrong is None:
                at = int(wrong.nonzero()[0])
                self.wrong = (self.position + at, float(want[at]), float(got[at]))
        return error, size


def may_pass(expected: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor], limit: Bounds) -> bool:
    """Whether ``make(expected)`` would pass for ``expected``; looks at a sample first."""
    if expected.dim() and expected.numel() > _CHUNK and limit.uncertain is None:
        sample = _sample(expected, _CHUNK)
        if not compare_tensor(sample, make(sample), replace(limit, rms=math.inf)).ok:
            return False
    return compare_tensor(expected, make(expected), limit).ok


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
    Integers and booleans do not differ by a little: each one that changes is a jump.
    """
    if other.shape != expected.shape or not expected.numel() or expected.dtype.is_complex:
        return 0.0, None
    if not expected.dtype.is_floating_point:
        changed = expected != other
        count = int(changed.sum())
        return (1.0 if count > _most_jumps(expected) else 0.0), changed if count else None
    size = scale(expected)
    largest = 0.0
    masks = []
    for want, moved in _chunks(expected, other):
        relative = (moved - want).abs_() / (want.abs() + (size + 1e-300))
        if bool((relative <= NOISE_CAP).all()):
            largest = max(largest, float(relative.max()))
            masks.append(None)
            continue
        relative = relative.nan_to_num(1.0, 1.0, 1.0)
        relative = torch.where(torch.isfinite(want) | torch.isfinite(moved), relative, 0.0)
        jumps = relative > NOISE_CAP
        masks.append(jumps if bool(jumps.any()) else None)
        largest = max(largest, float(torch.where(jumps, 0.0, relative).max()))
    count = sum(int(mask.sum()) for mask in masks if mask is not None)
    if count == 0:
        return largest, None
    if count > _most_jumps(expected):
        return 1.0, None
    jumps = torch.zeros(expected.numel(), dtype=torch.bool)
    for number, mask in enumerate(masks):
        if mask is not None:
            jumps[number * _CHUNK : number * _CHUNK + mask.numel()] = mask
    return largest, jumps.view(expected.shape)


def spread_where(
    counts: torch.Tensor, expected: torch.Tensor, other: torch.Tensor
) -> tuple[float, torch.Tensor | None]:
    """``spread`` of the elements that count, with its mask over all of them."""
    share, jumps = spread(expected[counts], other[counts])
    return share, None if jumps is None else torch.zeros_like(counts).masked_scatter(counts, jumps)


def _most_jumps(expected: torch.Tensor) -> int:
    return min(expected.numel() - 1, max(1, int(_UNCERTAIN_SHARE * expected.numel())))


def is_decision(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds integers or booleans, which change by jumps."""
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


def is_place(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds integers: among equal numbers any place may be right."""
    return is_decision(tensor) and tensor.dtype != torch.bool


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


def as_float64(tensor: torch.Tensor) -> torch.Tensor:
    """In float64; a complex number gives two, in one dimension more."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor
    return tensor.to(torch.float64)


def _chunks(*group: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The tensors' elements in order, in float64, a cacheful at a time (a complex number gives two)."""
    flat = [
        (torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor).reshape(-1)
        for tensor in group
    ]
    for start in range(0, flat[0].numel(), _CHUNK):
        yield tuple(tensor[start : start + _CHUNK].to(torch.float64) for tensor in flat)


def _index(flat: int, tensor: torch.Tensor) -> list[int]:
    """A flat position as an index of ``tensor``."""
    at = []
    flat = flat // 2 if tensor.dtype.is_complex else flat
    for size in reversed(tensor.shape):
        at.append(flat % size)
        flat //= size
    return at[::-1]


def _sample(values: torch.Tensor, most: int = _CHUNK) -> torch.Tensor:
    flat = values.reshape(-1)
    return flat if flat.numel() <= most else flat[:: -(-flat.numel() // most)]


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(index) for index in mask.nonzero()[0])
