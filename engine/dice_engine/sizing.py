"""Which published checkpoint fits a GPU. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

_CANDIDATES, _PROMPT, _REPLY = 8, 4096, 1024
_WORKING = 10**9
"""Bytes for CUDA itself, logits and what lies between the layers."""


@dataclass(frozen=True)
class Published:
    name: str
    weights: int
    """Bytes in bfloat16."""
    per_token: int
    """Bytes of keys and values."""

    @property
    def needed(self) -> int:
        """Bytes for eight candidates of 1024 tokens to one prompt of 4096, which they share."""
        return self.weights + _WORKING + self.per_token * (_PROMPT + _CANDIDATES * _REPLY)


PUBLISHED = (
    Published("DICE-1.7B", 4_060_000_000, 114_688),
    Published("DICE-4B", 8_822_848_512, 147_456),
    Published("DICE-8B", 16_381_470_720, 147_456),
)


def fitting_model(free: int, total: int) -> str:
    """One line: the largest checkpoint that fits into ``free`` bytes of a GPU, and what the next one needs."""
    room = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"
    fitting = [model for model in PUBLISHED if model.needed <= free]
    if not fitting:
        return f"{room}: the embedded nano; {PUBLISHED[0].name} needs {PUBLISHED[0].needed / 1e9:.1f} GB"
    best = fitting[-1]
    text = f"{room}: up to {best.name} ({best.needed / 1e9:.1f} GB with 8 candidates)"
    larger = PUBLISHED[len(fitting) :]
    return text + (f"; {larger[0].name} needs {larger[0].needed / 1e9:.1f} GB" if larger else "")
