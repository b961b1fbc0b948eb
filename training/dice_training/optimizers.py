"""Which parameters are trained by which optimizer, and how the rate goes over a run."""

from __future__ import annotations

import torch
from dice_engine.model.network import SdarModel

from dice_training.muon import Muon
from dice_training.recipe import SftRecipe


def make_optimizers(model: SdarModel, recipe: SftRecipe, fused: bool) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the layers' matrices and AdamW for the rest; ``peak`` is each group's rate."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    inner = [p for name, p in trained if p.dim() == 2 and ".layers." in name]
    outer = [p for name, p in trained if p.dim() == 2 and ".layers." not in name]
    vectors = [p for _, p in trained if p.dim() < 2]
    rate, decay = recipe.learning_rate, recipe.weight_decay
    adam_rate = rate if recipe.optimizer == "adamw" else recipe.adam_rate
    groups = [
        {"params": outer, "weight_decay": decay, "peak": adam_rate},
        {"params": vectors, "weight_decay": 0.0, "peak": adam_rate},
    ]
    if recipe.optimizer == "adamw":
        groups.append({"params": inner, "weight_decay": decay, "peak": adam_rate})
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(groups, lr=adam_rate, betas=(0.9, 0.95), fused=fused)
    ]
    if recipe.optimizer == "muon":
        muon = Muon(inner, lr=rate, weight_decay=decay)
        muon.param_groups[0]["peak"] = rate
        optimizers.append(muon)
    return optimizers


def schedule(done: float, warmup: float, decay: float) -> float:
    """The share of the peak rate when a share ``done`` of the run is behind: up, flat, then linearly to zero."""
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return min(1.0, (1.0 - done) / decay) if decay else 1.0
