"""Names: from pools of usual ones, or made up, so that a model learns to copy names rather than to expect them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text))


# Names with a meaning of their own in Python, C++, PyTorch or CUDA, and those that better bodies use by rule.
RESERVED = frozenset(
    _words(
        """
        as is in if or for def del do new asm int and not try auto else self torch nn F math float double char
        bool long short void while break case const static inline return switch struct class this true false
        None True False lambda pass with yield from import global assert print len max min abs sum pow round
        exp log sqrt sin cos tan floor ceil rint trunc tanh erf fabs fmax fmin fmod y0 y1 yn j0 j1 jn gamma
        lgamma tgamma log2 log10 exp2 expm1 log1p cosh sinh acos asin atan asinh hypot cbrt rsqrt sincos index
        div abs labs rand srand time clock remainder logb ilogb signbit select read write open close link dup
        base load apply stride up r r0 r1 r2 r3 o a k idx c n v tid lane shared total peak low sq mean inv rstd
        lse partial warp prepare out source cpp_source ext threads blocks inner row rows cols best where carry
        start left other_best other_where block_sum block_max block_min block_prod float2 float4 dim3 int2
        fused_forward Model ModelNew x y z w weight bias input
        """
    )
)
_STEMS = _words(
    """
    act acts amp angle arr attn axis band batch beam bin blend box buf bytes cache cell chan charge coef col
    color count cost cube curve decay delta depth dist drift dst edge emb energy err expo feat field fill filt
    flow flux force frame freq gain gate gauss grad grid hid hist img kern key lat layer leaf len level lhs
    line logit loss mag map mask mass mat mix mode mom noise obs offs outer pack pair patch phase pixel plane
    point pos power press prob proj pts query rate ratio ray reg resid res rhs right ring score seg sig signal
    slope slot span spec speed spin src state step strip table tap temp term tile tok track trend unit val
    vals vec vel view vol wave width win word zone sums acc part piece item elem node site atom ptr cur prev
    nxt hi lo top bottom first last old tmp work data sample series wt wts amount extent limit margin
    """
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def fresh_name(rng: random.Random, taken: Iterable[str] = ()) -> str:
    """A made-up name that is neither reserved nor ``taken``."""
    while True:
        roll = rng.random()
        if roll < 0.35:
            name = rng.choice(_STEMS)
        elif roll < 0.65:
            name = f"{rng.choice(_STEMS)}_{rng.choice(_STEMS)}"
        elif roll < 0.75:
            name = rng.choice(_STEMS) + rng.choice(_STEMS).capitalize()
        elif roll < 0.85:
            name = f"{rng.choice(_STEMS)}{rng.randrange(10)}"
        else:
            name = "".join(rng.choice(_LETTERS) for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5))))
        if name not in taken and name not in RESERVED:
            return name


class NamePool:
    """Names handed out once each; some files take them from the pools of usual names, some make them up."""

    def __init__(self, rng: random.Random, taken: Iterable[str] = (), fresh: float | None = None) -> None:
        self.rng = rng
        self.used = set(taken)
        self.fresh = rng.choice((0.0, 0.0, 0.3, 0.6, 1.0)) if fresh is None else fresh

    def take(self, pool: tuple[str, ...]) -> str:
        free = [name for name in pool if name not in self.used]
        made_up = not free or self.rng.random() < self.fresh
        name = fresh_name(self.rng, self.used) if made_up else self.rng.choice(free)
        self.used.add(name)
        return name
