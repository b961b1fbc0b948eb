"""What programs are run on: other fills of given inputs, and buffers for kernel plans."""

from __future__ import annotations

from typing import Any, Literal

import torch

FillKind = Literal["given", "uniform", "near_constant", "large", "small", "sparse", "negative", "moved"]
FILLS: tuple[FillKind, ...] = ("near_constant", "uniform", "large", "small", "sparse", "negative")
LARGE, SMALL = 100.0, 1e-3


def refill(values: Any, kind: FillKind, seed: int) -> Any:
    """Nested ``values`` with every floating tensor of more than one element filled anew; the rest stays.

    ``near_constant`` (1.3 give or take a thousandth) lets errors of low-precision sums pile up, which random signs
    hide; ``large`` (normal, times 100) overflows an exponential without its shift; ``small`` (normal, over 1000) shows
    the constants that keep a division from zero; ``sparse``: an eighth of nothing but zeros, then zeros, ones and
    denormals among normal numbers; ``negative``: none is above zero; ``moved``: see ``moved``.
    """
    generator = torch.Generator().manual_seed(seed)

    def fill(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.dtype.is_floating_point or value.numel() < 2:
                return value
            if kind == "moved":
                return torch.empty_like(value).copy_(moved(value))
            return fill_tensor(torch.empty_like(value), kind, generator)
        if isinstance(value, list | tuple):
            return type(value)(fill(item) for item in value)
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return value

    return fill(values)


def fill_tensor(tensor: torch.Tensor, kind: FillKind, generator: torch.Generator) -> torch.Tensor:
    """Fill a floating tensor in place."""
    wide = torch.float32 if tensor.dtype.itemsize < 4 else tensor.dtype
    shape = tensor.shape
    if kind == "uniform":
        fresh = torch.rand(shape, generator=generator, dtype=wide)
    elif kind == "near_constant":
        fresh = 1.3 + 1e-3 * torch.rand(shape, generator=generator, dtype=wide)
    else:
        fresh = torch.randn(shape, generator=generator, dtype=wide)
        fresh *= {"large": LARGE, "small": SMALL}.get(kind, 1.0)
    if kind == "negative":
        fresh = -fresh.abs()
    if kind == "sparse":
        _sprinkle(fresh, torch.finfo(tensor.dtype).tiny / 8, generator)
    return tensor.copy_(fresh)


def _sprinkle(fresh: torch.Tensor, denormal: float, generator: torch.Generator) -> None:
    """Zeros, ones and denormals in place of some numbers, zeros at the front."""
    chance = torch.rand(fresh.shape, generator=generator)
    for low, value in ((0.0, 0.0), (0.12, 1.0), (0.18, -1.0), (0.24, denormal)):
        fresh[(chance >= low) & (chance < low + 0.06 + 0.06 * (value == 0))] = value
    fresh.view(-1)[: fresh.numel() // 8] = 0.0


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, each but the first and the last one place further; integers stay, they may be places."""
    if not tensor.dtype.is_floating_point or tensor.numel() < 4:
        return tensor
    flat = tensor.flatten()
    inside = flat[1:-1].roll(1)
    return torch.cat((flat[:1], inside, flat[-1:])).view(tensor.shape)


def nudge(values: Any, seed: int, steps: float = 1.0) -> Any:
    """Every floating tensor moved by at most ``steps`` rounding steps of its type, to see how the reference reacts."""
    generator = torch.Generator().manual_seed(seed)

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.dtype.is_floating_point:
                return value
            signs = torch.randint(-1, 2, value.shape, generator=generator).to(value.dtype)
            return value + value * signs * (steps * torch.finfo(value.dtype).eps)
        if isinstance(value, list | tuple):
            return type(value)(move(item) for item in value)
        if isinstance(value, dict):
            return {key: move(item) for key, item in value.items()}
        return value

    return move(values)


def changeable(values: Any) -> bool:
    """Whether ``refill`` would change anything."""
    if isinstance(values, torch.Tensor):
        return values.dtype.is_floating_point and values.numel() > 1
    items = (
        values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else ()
    )
    return any(changeable(item) for item in items)
