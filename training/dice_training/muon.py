"""Muon with equal matrices orthogonalised together: a few large launches a step instead of thousands of small ones.

The update is that of ``torch.optim.Muon`` with ``adjust_lr_fn="match_rms_adamw"`` (arXiv 2502.16982), whose loop over
single matrices costs a small model more time than its forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration; source: Keller Jordan's Muon (github.com/KellerJordan/Muon)."""


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, for 2-D parameters only. Every parameter must have a gradient at each step."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        steps: int = 5,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "steps": steps}
        )
        if any(p.dim() != 2 for group in self.param_groups for p in group["params"]):
            raise ValueError("Muon is for matrices")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for params in _by_shape(group["params"]):
                self._update(params, group)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """One step of matrices of one shape. Their momentum is one tensor ``[n, a, b]``, kept with the first."""
        gradient = torch.stack([p.grad for p in params if p.grad is not None])
        state = self.state[params[0]]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        state["momentum"].lerp_(gradient, 1 - group["momentum"])
        update = _orthogonal(gradient.lerp_(state["momentum"], group["momentum"]), group["steps"])
        scale = 0.2 * math.sqrt(max(params[0].shape))
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])  # type: ignore[attr-defined]
        torch._foreach_add_(params, update.to(params[0].dtype).unbind(), alpha=-group["lr"] * scale)  # type: ignore[attr-defined]


def _orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """:func:`orthogonalize` also where each process has some rows of every matrix: for as long as it takes, each has
    some of the matrices whole."""
    if not isinstance(matrices, DTensor):
        return orthogonalize(matrices, steps)
    whole = matrices.redistribute(placements=[Shard(0)])
    done = orthogonalize(whole.to_local(), steps).contiguous()
    back = DTensor.from_local(
        done, matrices.device_mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride()
    )
    return back.redistribute(placements=matrices.placements)


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """About the nearest matrices with orthonormal rows or columns, in bf16, of a batch ``[n, a, b]``.

    The iteration of ``torch.optim.Muon``: singular values end up between about 0.5 and 1.5, not at 1.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.bfloat16()
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _by_shape(params: Iterable[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.Size, list[Tensor]] = {}
    for p in params:
        groups.setdefault(p.shape, []).append(p)
    return list(groups.values())
