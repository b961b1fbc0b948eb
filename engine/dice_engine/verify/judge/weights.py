"""Weights that are all ones or zeros when they are new hide a kernel that does not read them: other values for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

TRAINED = "trained"
"""The case with these values."""
_SEED = 11

Entry = tuple[str, str, list[int], str]
"""Name, dtype, shape and digest of a parameter or buffer."""


def trained(even: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Values as training may leave them: each up to a half more or less (signs stay: variances), zeros near zero."""
    generator = torch.Generator().manual_seed(_SEED)
    values: dict[str, torch.Tensor] = {}
    for name, value in even.items():
        shares = torch.rand(value.shape, generator=generator, dtype=torch.float64) - 0.5
        wide = value.double()
        values[name] = (wide + torch.where(wide == 0, 0.2 * shares, wide * shares)).to(value.dtype)
    return values


def counterparts(
    names: Sequence[str], ours: Sequence[Entry], theirs: Sequence[Entry]
) -> dict[str, str] | None:
    """What the candidate calls each of the reference's ``names``; None where that is in doubt.

    Under another name it is the only entry of the same type, shape and contents, or the only one of these with the
    same last word.
    """
    contents = {name: (dtype, tuple(shape), digest) for name, dtype, shape, digest in ours}
    found = {name: (dtype, tuple(shape), digest) for name, dtype, shape, digest in theirs}
    pairs: dict[str, str] = {}
    for name in names:
        if name in found and found[name][:2] == contents[name][:2]:
            pairs[name] = name
            continue
        alike = [
            other for other, content in found.items() if content == contents[name] and other not in contents
        ]
        last = name.rpartition(".")[2]
        chosen = alike if len(alike) == 1 else [other for other in alike if other.rpartition(".")[2] == last]
        if len(chosen) != 1:
            return None
        pairs[name] = chosen[0]
    return pairs if len(set(pairs.values())) == len(pairs) else None
