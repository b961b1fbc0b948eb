"""Rows that are there already: equal in text, or nearly so (MinHash over runs of tokens)."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from dice_training.cuke.verify import Row

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[^\w\s]")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_RUN = 5
_BANDS, _ROWS = 16, 4
_PRIME = np.uint64((1 << 61) - 1)
_rng = np.random.default_rng(20_250_131)
_FACTOR = _rng.integers(1, 1 << 31, _BANDS * _ROWS, dtype=np.uint64)
_SHIFT = _rng.integers(0, 1 << 61, _BANDS * _ROWS, dtype=np.uint64)


class Duplicates:
    """Remembers rows. ``near`` is the share of common runs of tokens from which two rows of a kind are the same (1:
    only equal texts are). Spaces and comments of C do not count."""

    def __init__(self, near: float) -> None:
        self.near = near
        self._texts: set[bytes] = set()
        self._sketches: list[np.ndarray] = []
        self._bands: dict[tuple[str, int, bytes], list[int]] = {}

    def add(self, row: Row) -> bool:
        """Remember ``row``; False where it (or nearly it) is known already, and nothing is remembered."""
        text = _text(row)
        digest = hashlib.blake2b(f"{row['kind']} {''.join(text.split())}".encode(), digest_size=16).digest()
        if digest in self._texts:
            return False
        if self.near < 1:
            sketch = _sketch(_TOKEN.findall(text))
            keys = [(row["kind"], band, sketch[band * _ROWS :][:_ROWS].tobytes()) for band in range(_BANDS)]
            candidates = {number for key in keys for number in self._bands.get(key, ())}
            if any((self._sketches[number] == sketch).mean() >= self.near for number in candidates):
                return False
            for key in keys:
                self._bands.setdefault(key, []).append(len(self._sketches))
            self._sketches.append(sketch)
        self._texts.add(digest)
        return True


def _text(row: Row) -> str:
    parts = (row["reference"], row["prefix"], row["core"], row["suffix"])
    return _COMMENT.sub(" ", "\n".join(parts))


def _sketch(tokens: list[str]) -> np.ndarray:
    """uint64 ``[BANDS * ROWS]``: equal entries estimate the share of runs that two texts have in common."""
    runs = {" ".join(tokens[i : i + _RUN]) for i in range(max(1, len(tokens) - _RUN + 1))}
    values = [int.from_bytes(hashlib.blake2b(run.encode(), digest_size=4).digest(), "big") for run in runs]
    hashed = (np.array(values, np.uint64)[:, None] * _FACTOR + _SHIFT) % _PRIME
    return hashed.min(axis=0)
