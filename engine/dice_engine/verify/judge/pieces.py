"""Is an answer put together from pieces? Short runs of its elements are looked for in what torch computed.

Halves, rows, a padded or turned tensor: none has the answer's shape, yet kernels that copy from them compute nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from dice_engine.verify import compare
from dice_engine.verify.compare import Bounds

_RUN = 8
_RUNS = 24
_TELLING = 8
"""So many runs must be found to say anything."""
_STARTS = 64
_DISTINCT = 50
"""A run whose elements lie closer together than so many tolerances may be anywhere by chance."""


def put_together(
    expected: Sequence[torch.Tensor],
    limits: Sequence[Bounds],
    held: Sequence[torch.Tensor],
    known: Sequence[torch.Tensor],
) -> bool:
    """Whether every looked-at run of each output lies in ``held`` at equal steps, and none of them in ``known``."""
    sources, own = ([_flat(tensor) for tensor in group if tensor.numel() >= _RUN] for group in (held, known))
    if not sources or not expected:
        return False
    return all(_all_found(*pair, sources, own) for pair in zip(expected, limits, strict=True))


def _all_found(
    expected: torch.Tensor, limit: Bounds, sources: list[torch.Tensor], own: list[torch.Tensor]
) -> bool:
    if not expected.dtype.is_floating_point:
        return False
    flat, found = _flat(expected), 0
    floor = limit.rel * (limit.scale if limit.scale is not None else compare.scale(expected)) + limit.abs
    for start in _starts(expected):
        run = flat[start : start + _RUN]
        near = run.abs() * limit.rel + floor
        distinct = bool((run.diff().abs() > _DISTINCT * near[1:]).sum() >= _RUN // 2)
        if not distinct or not bool(torch.isfinite(run).all()) or _found(run, near, own):
            continue
        if not _found(run, near, sources):
            return False
        found += 1
    return found >= _TELLING


def _starts(expected: torch.Tensor) -> list[int]:
    """Where runs begin: all over the output, each within a row where rows are long enough."""
    width = expected.shape[-1] if expected.dim() and expected.shape[-1] >= _RUN else expected.numel()
    rows = expected.numel() // max(1, width)
    if width < _RUN:
        return []
    at = range(_RUNS)
    return [(number * rows // len(at)) * width + (number * 37 + 11) % (width - _RUN + 1) for number in at]


def _found(run: torch.Tensor, near: torch.Tensor, sources: Sequence[torch.Tensor]) -> bool:
    return any(_lies_in(run, near, source) for source in sources)


def _lies_in(run: torch.Tensor, near: torch.Tensor, source: torch.Tensor) -> bool:
    first, second = (
        ((source - run[place]).abs() <= near[place]).nonzero().flatten()[:_STARTS].tolist()
        for place in (0, 1)
    )
    for begin, following in itertools.product(first, second):
        step, last = following - begin, begin + (_RUN - 1) * (following - begin)
        if step == 0 or not 0 <= last < source.numel():
            continue
        places = torch.arange(_RUN) * step + begin
        if bool(((source[places] - run).abs() <= near).all()):
            return True
    return False


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return compare.as_float64(tensor).flatten()
