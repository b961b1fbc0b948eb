"""Muon in batches against torch.optim.Muon, one matrix at a time."""

from __future__ import annotations

import pytest
import torch
from dice_training.muon import Muon, orthogonalize

SHAPES = [(24, 24), (24, 24), (12, 24), (12, 24), (48, 24), (24, 48), (24, 48)]


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 0.005), (torch.bfloat16, 0.03)])
def test_steps_are_those_of_torch(dtype: torch.dtype, error: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
    ours = [torch.nn.Parameter(p.clone()) for p in start]
    theirs = [torch.nn.Parameter(p.clone()) for p in start]
    batched = Muon(ours, lr=0.5, weight_decay=0.1)
    single = torch.optim.Muon(theirs, lr=0.5, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(6):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape, generator=generator).to(dtype)
            q.grad = p.grad.clone()
        for optimizer in (batched, single):
            optimizer.param_groups[0]["lr"] = 0.5 / (step + 1)
            optimizer.step()
    for p, q, before in zip(ours, theirs, start, strict=True):
        moved = (q - before).float().norm()
        assert (p - q).float().norm() < error * moved  # bf16 inside: rounding differs, the update does not


@pytest.mark.parametrize("shape", [(3, 16, 40), (3, 40, 16)])
def test_singular_values_are_near_one(shape: tuple[int, ...]) -> None:
    out = orthogonalize(torch.randn(shape, generator=torch.Generator().manual_seed(1))).float()
    values = torch.linalg.svdvals(out)
    assert values.min() > 0.5 and values.max() < 1.5
    assert out.shape == shape


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="matrices"):
        Muon([torch.nn.Parameter(torch.zeros(3))], lr=1.0)
