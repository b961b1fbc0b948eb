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
from dice_training.ranks import ALONE, Ranks
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


@dataclass(frozen=True)
class Lesson:
    """What an update learns from: for each of its optimiser steps the rows of this process, the log-probabilities of
    their drawn tokens when they were drawn (for each micro-batch; None: those of the step itself), and the number of
    drawn tokens of all processes."""

    rows: list[Rows]
    old: list[list[Tensor]] | None
    tokens: list[int]
    left_out: int


class Policy:
    def __init__(
        self,
        model: SdarModel,
        recipe: RlRecipe,
        reference: SdarModel | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """``model`` in float32 on its device; ``reference`` are the frozen weights of the KL (default: those of
        ``model`` now), kept only where the recipe weighs it. Of several processes (``ranks``) each takes its part of
        the rows; gradients are summed."""
        self.model, self.recipe, self.ranks = model.requires_grad_(True), recipe, ranks
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

    def prepare(self, groups: Sequence[Group], drawn_by: SdarModel | None = None) -> Lesson:
        """``groups`` in as many parts as the recipe has ``updates``. ``drawn_by``: other weights that drew them."""
        packed = [self._pack(list(part)) for part in _parts(groups, self.recipe.updates)]
        parts = [part for part, _ in packed if len(part)]
        rank, count = self.ranks.rank, self.ranks.count
        rows = [Rows(**{name: array[rank::count] for name, array in vars(part).items()}) for part in parts]
        # With one step the weights are those that are old; with several they must be asked before the first.
        old = None
        if drawn_by is not None or len(rows) > 1:
            model = drawn_by or self.model
            old = [[self._old(model, micro) for micro in self._micro(part)] for part in rows]
        tokens = [int(part.loss.sum()) for part in parts]
        return Lesson(rows, old, tokens, sum(left_out for _, left_out in packed))

    def update(self, lesson: Lesson) -> Update:
        """One optimiser step for each part."""
        done = Update(left_out=lesson.left_out, tokens=sum(lesson.tokens))
        for number, rows in enumerate(lesson.rows):
            self._step(rows, lesson.old[number] if lesson.old else None, lesson.tokens[number], done)
        names = ("loss", "kl", "entropy", "clipped")
        sums = torch.tensor([getattr(done, name) for name in names], dtype=torch.float64)
        steps = max(1, len(lesson.rows))
        for name, total in zip(names, self.ranks.total(sums).tolist(), strict=True):
            setattr(done, name, total / steps)
        done.norm /= steps
        return done

    def _pack(self, groups: Sequence[Group]) -> tuple[Rows, int]:
        return pack(
            groups,
            length=self.recipe.row_length,
            block_size=self._block,
            mask_id=self.model.config.mask_token_id,
            shrink=self.recipe.shrink,
        )

    def _step(self, rows: Rows, old: list[Tensor] | None, tokens: int, done: Update) -> None:
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
        for parameter in self.model.parameters():
            if parameter.grad is None:  # another process may have had a row where this one had none
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.add_gradients(self.model.parameters())
        done.norm += float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def log_probabilities(self, model: SdarModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the drawn tokens of ``batch``, in the order of their places: log-probability and entropy ``[n]``."""
        if model not in self._layers:
            self._layers[model] = Layers(model, self.cuda)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self.cuda):
            hidden = self._layers[model](batch.ids, batch.position, self._mask(batch))
            logits = model.head(model.model.norm(hidden[batch.loss]))
        temperature = self.recipe.temperature
        return log_probabilities(logits, batch.target[batch.loss], model.config.mask_token_id, temperature)

    @torch.no_grad()
    def _old(self, model: SdarModel, rows: Rows) -> Tensor:
        return self.log_probabilities(model, self._load(rows))[0]

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
