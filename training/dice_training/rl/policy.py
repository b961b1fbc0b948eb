"""The weights that learn: float32, with the state of AdamW kept from step to step."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from dice_engine.model.network import SdarModel
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from dice_training.forward import Layers
from dice_training.rl.objective import (
    Batch,
    MaskMod,
    dense_visibility,
    kl_estimate,
    log_probabilities,
    policy_loss,
    visibility,
)
from dice_training.rl.recipe import RlRecipe
from dice_training.rl.trajectory import Group, Rows, pack

BETAS = (0.9, 0.999)
MAX_NORM = 1.0


@dataclass
class Update:
    """What an update did; means are over drawn tokens."""

    loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    norm: float = 0.0
    """Of the gradient, before it is clipped."""
    tokens: int = 0
    left_out: int = 0
    """Replies too long for a row."""


class Policy:
    def __init__(self, model: SdarModel, recipe: RlRecipe, reference: SdarModel | None = None) -> None:
        """``model`` in float32 on its device; ``reference`` are the frozen weights of the KL (default: those of
        ``model`` now), kept only where the recipe weighs it."""
        self.model, self.recipe = model.requires_grad_(True), recipe
        self.reference: SdarModel | None = None
        if recipe.kl:
            self.reference = (reference or copy.deepcopy(model)).requires_grad_(False)
        self.cuda = model.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, betas=BETAS, weight_decay=0.0, fused=self.cuda
        )
        self._block = model.config.block_size
        self._layers = {m: Layers(m, self.cuda) for m in (self.model, self.reference) if m is not None}
        self._make_mask = torch.compile(create_block_mask) if self.cuda else create_block_mask
        self._batch: Batch | None = None
        self._mask_mod: MaskMod | None = None

    def update(self, groups: Sequence[Group]) -> Update:
        """One optimiser step for each of the recipe's ``updates`` parts of ``groups``."""
        recipe, done = self.recipe, Update()
        parts = [list(part) for part in _parts(groups, recipe.updates)]
        packed = [self._pack(part) for part in parts]
        done.left_out = sum(left_out for _, left_out in packed)
        rows = [part for part, _ in packed if len(part)]
        # With one step the weights are those that are old; with several they must be asked before the first.
        old = [[self._old(micro) for micro in self._micro(part)] for part in rows] if len(rows) > 1 else None
        for number, part in enumerate(rows):
            self._step(part, old[number] if old else None, done)
        for name in ("loss", "kl", "entropy", "clipped", "norm"):
            setattr(done, name, getattr(done, name) / max(1, len(rows)))
        return done

    def _pack(self, groups: Sequence[Group]) -> tuple[Rows, int]:
        return pack(
            groups,
            length=self.recipe.row_length,
            block_size=self._block,
            mask_id=self.model.config.mask_token_id,
            shrink=self.recipe.shrink,
        )

    def _step(self, rows: Rows, old: list[Tensor] | None, done: Update) -> None:
        tokens = int(rows.loss.sum())
        for number, micro in enumerate(self._micro(rows)):
            batch = self._load(micro)
            new, entropy = self.log_probabilities(self.model, batch)
            before = new.detach() if old is None else old[number]
            loss, clipped = policy_loss(new, before, batch.advantage[batch.loss], self.recipe.clip, tokens)
            share = len(new) / tokens
            if self.reference is not None:
                with torch.no_grad():
                    theirs, _ = self.log_probabilities(self.reference, batch)
                kl = kl_estimate(new, theirs).sum() / tokens
                loss = loss + self.recipe.kl * kl
                done.kl += kl.item()
            loss.backward()
            done.loss += loss.item()
            done.entropy += entropy.mean().item() * share
            done.clipped += clipped.item() * share
        done.norm += float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        done.tokens += tokens

    def log_probabilities(self, model: SdarModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the drawn tokens of ``batch``, in the order of their places: log-probability and entropy ``[n]``."""
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.cuda):
            hidden = self._layers[model](batch.ids, batch.position, self._mask(batch))
            logits = model.head(model.model.norm(hidden[batch.loss]))
        temperature = self.recipe.temperature
        return log_probabilities(logits, batch.target[batch.loss], model.config.mask_token_id, temperature)

    @torch.no_grad()
    def _old(self, rows: Rows) -> Tensor:
        return self.log_probabilities(self.model, self._load(rows))[0]

    def _micro(self, rows: Rows) -> Iterator[Rows]:
        """``batch_rows`` rows at a time, the last batch filled up with empty rows: shapes never change."""
        size = self.recipe.batch_rows
        for start in range(0, len(rows), size):
            part = {name: array[start : start + size] for name, array in vars(rows).items()}
            missing = size - len(part["ids"])
            yield Rows(**{name: np.pad(array, ((0, missing), (0, 0))) for name, array in part.items()})

    def _load(self, rows: Rows) -> Batch:
        batch = Batch.of(rows, self.model.device)
        if not self.cuda:
            return batch
        if self._batch is None:  # one mask over one set of buffers, so that nothing is compiled twice
            self._batch, self._mask_mod = batch, visibility(batch, self._block)
        for buffer, values in zip(vars(self._batch).values(), vars(batch).values(), strict=True):
            buffer.copy_(values)
        return self._batch

    def _mask(self, batch: Batch) -> Tensor | BlockMask:
        if self._mask_mod is None:
            return dense_visibility(batch, self._block)
        rows, length = batch.ids.shape
        return self._make_mask(self._mask_mod, rows, None, length, length, device=batch.ids.device)


def _parts(groups: Sequence[Group], count: int) -> Iterator[Sequence[Group]]:
    """``groups`` in ``count`` parts of about equal size (fewer where there are not as many groups)."""
    size = -(-len(groups) // count)
    for start in range(0, len(groups), max(1, size)):
        yield groups[start : start + size]
