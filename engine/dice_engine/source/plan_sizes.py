"""Size sets for a wrapper: what its launches say about extents, and sizes that bring out wrong kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dice_engine.source.host import HostError, LaunchCall, Unsupported

_CHECKED_ELEMENTS = 1 << 20
_MEASURED_ELEMENTS = 1 << 24
_ODD = ((37, 1031), (1031, 37), (5, 17))
_SPREADS = {
    1: [(1031,)],
    2: list(_ODD),
    3: [(33, 45, 67), (67, 33, 45), (3, 5, 17)],
    4: [(3, 5, 37, 41), (5, 3, 41, 37), (2, 3, 5, 7)],
}

Rehearsal = Callable[[dict[str, int]], list[LaunchCall]]
"""Runs the wrapper at given sizes without a device; raises ``Unsupported`` or ``HostError``."""


@dataclass(frozen=True)
class SizeSets:
    sizes: tuple[dict[str, int], ...]
    """Checking sets, then one for timing (when it could be found: ``measured``)."""
    measured: bool
    power: int
    """Elements grow with this power of the only symbol (2: square matrices); 1 with several symbols."""
    threads: int
    fixed_threads: int | None
    """Threads of the whole grid when its size does not depend on the sizes."""


def choose(symbols: list[str], kernel: str, rehearse: Rehearsal) -> SizeSets:
    """Size sets for ``symbols``.

    Raises ``Unsupported`` with the reason when no sizes make the wrapper launch ``kernel``.
    """
    probe = _Probe(symbols, kernel, rehearse)
    threads, fixed = probe.threads, probe.fixed_threads
    power = probe.power()
    candidates = list(_candidates(symbols, threads, fixed, power))
    kept = [s for s in candidates if probe.launches(s) is not None]
    if not any(_odd(s, threads) for s in kept):
        kept += [s for s in _divisible(symbols, power) if probe.launches(s) is not None]
    if not kept:
        raise Unsupported(probe.failure or f"no sizes found at which {kernel} is launched")
    big = next((s for s in _measuring(symbols, power) if probe.launches(s) is not None), None)
    unique = list({tuple(s.items()): s for s in kept}.values())
    return SizeSets(tuple([*unique, big] if big else unique), big is not None, power, threads, fixed)


class _Probe:
    def __init__(self, symbols: list[str], kernel: str, rehearse: Rehearsal) -> None:
        self.symbols, self.kernel, self.rehearse = symbols, kernel, rehearse
        self.failure = ""
        small = self._first((96, 128, 64, 1024, 32, 16))
        large = self._first((1024, 2048, 512, 256))
        if small is None or large is None:
            raise Unsupported(self.failure or f"no sizes found at which {kernel} is launched")
        self.threads = math.prod(small.block)
        total_small, total_large = math.prod(small.grid), math.prod(large.grid)
        self.fixed_threads = total_small * self.threads if total_small == total_large else None

    def _first(self, values: Iterable[int]) -> LaunchCall | None:
        for value in values:
            call = self.launches(dict.fromkeys(self.symbols, value))
            if call is not None:
                return call
        return None

    def launches(self, sizes: dict[str, int]) -> LaunchCall | None:
        """The first launch of the kernel at ``sizes``, or None (and ``failure`` says why)."""
        try:
            calls = self.rehearse(sizes)
        except HostError as error:
            self.failure = f"the host code refuses the sizes tried: {error}"
            return None
        found = next((c for c in calls if c.kernel == self.kernel), None)
        if found is None:
            self.failure = f"{self.kernel} is not launched at the sizes tried"
        return found

    def power(self) -> int:
        """How the work grows with the only symbol: 1 for vectors, 2 for square matrices, 3 for cubes."""
        if len(self.symbols) != 1:
            return 1
        first, second = self.launches({self.symbols[0]: 512}), self.launches({self.symbols[0]: 2048})
        if first is None or second is None:
            return 1
        work = [math.prod(c.grid) * math.prod(c.block) for c in (first, second)]
        return min(3, max(1, round(math.log(work[1] / work[0], 4))))


def _odd(sizes: dict[str, int], threads: int) -> bool:
    return any(v % max(threads, 2) for v in sizes.values())


def _candidates(symbols: list[str], threads: int, fixed: int | None, power: int) -> Iterable[dict[str, int]]:
    if len(symbols) == 1:
        name = symbols[0]
        side = threads if power == 1 else max(8, math.isqrt(threads))
        limit = int(_CHECKED_ELEMENTS ** (1 / power))
        yield {name: min(limit, 4 * side + side // 2 + 3)}
        yield {name: max(1, side // 2 - 3)}
        if fixed is not None and power == 1:
            yield {name: min(limit, fixed + threads // 2 + 5)}
        elif power == 1:
            yield {name: min(limit, 70 * side + 13)}
        return
    for values in _SPREADS.get(len(symbols), [_spread(len(symbols))]):
        yield dict(zip(symbols, values, strict=True))
    if fixed is not None:
        first, second = 1031, 37
        while first * second <= fixed + threads and first * second * 2 <= _CHECKED_ELEMENTS:
            first *= 2
        rest = [first + 1, second] + [1] * (len(symbols) - 2)
        yield dict(zip(symbols, rest, strict=True))


def _spread(count: int) -> tuple[int, ...]:
    """Small distinct sizes for many symbols: their product is the extent of every buffer."""
    values = [2, 3, 5, 4, 3, 2]
    return tuple(values[i] if i < len(values) else 2 for i in range(min(count, 15))) + (1,) * max(
        0, count - 15
    )


def _divisible(symbols: list[str], power: int) -> Iterable[dict[str, int]]:
    """For wrappers that accept only multiples of something."""
    choices = {1: (4096, 1024) if power == 1 else (256, 128), 2: (256, 64), 3: (64, 32)}.get(
        len(symbols), (8, 16)
    )
    for value in choices:
        yield dict.fromkeys(symbols, value)


def _measuring(symbols: list[str], power: int) -> Iterable[dict[str, int]]:
    exponent = power if len(symbols) == 1 else len(symbols)
    side = 1 << int(math.log2(_MEASURED_ELEMENTS) / exponent)
    while side >= 16 or (side >= 2 and exponent > 4):
        yield dict.fromkeys(symbols, side)
        side //= 4
