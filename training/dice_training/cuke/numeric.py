"""Is a specification numerically worth training on? A quick look in numpy at a few rows of it.

A sample must be decidable: finite, not constant, every operator doing something, and no rounding error blown up
so far that two correct float32 kernels could disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dice_training.cuke.spec import Spec

_ROWS, _COLS = 6, 512
_RNG = np.random.default_rng(20)
_POOL = {
    "randn": [_RNG.standard_normal((_ROWS, _COLS)) for _ in range(6)],
    "rand": [_RNG.random((_ROWS, _COLS)) for _ in range(6)],
}
for _array in _POOL["randn"]:
    _array[0, :4] = (5.2, -5.2, 4.4, -4.4)
_NOISE = [1.0 + 2e-7 * _RNG.standard_normal((_ROWS, _COLS)) for _ in range(8)]


class _Boring(Exception):
    """Not finite, too large, or an operator without effect."""


def _run(spec: Spec, noisy: bool) -> Any:
    cols = min(spec.length, _COLS)
    pool = _POOL[spec.fill]
    operands = {
        o.name: pool[1 + i % 5][:1, :cols] if o.layout == "vec" else pool[1 + i % 5][:, :cols]
        for i, o in enumerate(spec.operands)
    }
    value = pool[0][:, :cols]
    count = 0

    def step_through(steps: Any, value: Any) -> Any:
        nonlocal count
        for step in steps:
            scalars = [s.value for s in step.scalars] + [None, None]
            tensors = [operands[o.name] for o in step.operands] + [None, None]
            new = step.definition.numpy(value, scalars[0], scalars[1], tensors[0], tensors[1])
            if noisy:
                noise = _NOISE[count % 8][:, :cols]
                if not step.definition.keeps_exact:
                    new = new * (noise[:, :1] if new.shape[-1] == 1 else noise)
            else:
                peak = np.abs(new).max()
                if not np.isfinite(peak) or peak > 2e3:
                    raise _Boring
                if (np.abs(new - value) > 1e-3 * (np.abs(value) + 1e-3)).mean() < 0.04:
                    raise _Boring
                if new.std() < 1e-2 * np.sqrt((new * new).mean()) or not new.any():
                    raise _Boring
            value = new
            count += 1
        return value

    value = step_through(spec.before, value)
    if spec.row:
        if cols < 2:
            raise _Boring
        if spec.row.op == "prod" and (
            np.abs(value).min() < 0.3 or np.abs(value).max() > 2.5 or spec.length > 64
        ):
            raise _Boring
        if spec.row.op in ("l1_normalize", "l2_normalize") and cols < 5:
            raise _Boring
        if spec.row.definition.maps and value.std(-1).min() < 1e-2 * np.sqrt((value * value).mean()):
            raise _Boring
        value = spec.row.definition.numpy(value)
        if noisy:
            value = value * (1.0 + 3.0 * (_NOISE[7][:, : value.shape[-1]] - 1.0))
        value = step_through(spec.after, value)
    return value


def _same(value: Any, x: Any) -> bool:
    """Whether the whole computation gives back nearly all of its input."""
    x = x[:, : value.shape[-1]]
    return bool((np.abs(value - x) > 1e-3 * (np.abs(x) + 1e-3)).mean() < 0.04)


def tame(spec: Spec) -> bool:
    """True when the result is finite, varied and well conditioned, and each operator changes its input."""
    with np.errstate(all="ignore"):
        try:
            clean, noisy = _run(spec, False), _run(spec, True)
        except _Boring:
            return False
        rms = float(np.sqrt((clean * clean).mean()))
        if not np.isfinite(clean).all() or rms < 1e-7 or rms > 1e5:
            return False
        spread = clean.std() if not spec.reduces else clean.std(0).max()
        if spread < 1e-2 * rms:
            return False
        if not spec.reduces and _same(clean, _POOL[spec.fill][0]):
            return False
        if spec.row and spec.row.definition.special.startswith("arg"):
            return len(np.unique(clean)) > 2
        off = np.abs(noisy - clean)
        return bool((off <= 1.5e-5 * (np.abs(clean) + rms)).all())
