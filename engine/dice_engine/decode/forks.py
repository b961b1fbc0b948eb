"""Where a reply could have gone another way: the tokens that the network thought likeliest next to those it wrote.

A network that is sure of itself gives the same reply at any sensible temperature. What it was least sure of is known
all the same, and a reply that takes the other turn there is as much its own as the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dice_engine.decode.pages import PagePool
from dice_engine.model.network import Attend, SdarModel

_PER_PLACE = 2
"""Forks at one place of a reply at most, so that one open question does not take all of them."""
_HEAD_CELLS = 256
"""Cells whose logits are held at a time."""


@dataclass(frozen=True)
class Fork:
    """``token`` instead of the one at ``place`` of a reply, where it had the log-probability ``logp``."""

    place: int
    token: int
    logp: float


@dataclass(frozen=True)
class _Cells:
    """The tokens of a review: first those that stand, then each block once for each of its steps, as it was then."""

    ids: list[int]
    positions: list[int]
    view: list[int]
    """0 for what stands; else the number of the block's copy."""
    asked: list[int]
    """Cells that became a token in their step,"""
    places: list[int]
    """and their places in the reply."""


@torch.inference_mode()
def forks(
    model: SdarModel,
    pool: PagePool,
    prompt: Sequence[int],
    reply: Sequence[int],
    steps: Sequence[int],
    block_size: int,
    banned: Iterable[int] = (),
) -> list[Fork]:
    """The forks of ``reply`` to ``prompt``, likeliest first, at most two a place; none takes one of the ``banned``.

    ``steps``: the step inside its block at which each token was unmasked. Probabilities are those of that step, so one
    pass over the reply tells all of them; what ``pool`` knows of prompt and reply is not computed anew.
    """
    known = pool.find([*prompt, *reply])
    try:
        first = len(prompt) // block_size * block_size
        last = (len(prompt) + len(reply) - 1) // block_size * block_size
        # Pages behind the last block's beginning hold nothing that a block of the reply sees.
        base = min(len(known) * pool.size, last)
        cells = _cells(model.config.mask_token_id, prompt, reply, steps, block_size, first, base, last)
        device = model.device
        slots = pool.slots(
            torch.tensor([known or [0]], device=device), torch.arange(base, device=device)[None]
        )[0]
        ids, positions, view = torch.tensor([cells.ids, cells.positions, cells.view], device=device)
        attend = _attention(pool, slots, positions // block_size, view, block_size)
        hidden = model.model(ids[None], positions[None], attend)[0]
    finally:
        pool.give_back(known)
    return _likeliest(model, hidden[cells.asked], reply, cells.places, [*banned, model.config.mask_token_id])


def _cells(
    mask: int,
    prompt: Sequence[int],
    reply: Sequence[int],
    steps: Sequence[int],
    size: int,
    first: int,
    base: int,
    last: int,
) -> _Cells:
    tokens, given = [*prompt, *reply], len(prompt)
    when = [-1] * given + list(steps)
    cells = _Cells(tokens[base:last], list(range(base, last)), [0] * (last - base), [], [])
    copies = 0
    for start in range(first, last + size, size):
        block = range(start, min(start + size, len(tokens)))
        for step in sorted({when[i] for i in block if i >= given}):
            copies += 1
            for i in range(start, start + size):
                inside = i < len(tokens)
                if inside and when[i] == step:
                    cells.asked.append(len(cells.ids))
                    cells.places.append(i - given)
                cells.ids.append(tokens[i] if inside and when[i] < step else mask)
                cells.positions.append(i)
                cells.view.append(copies)
    return cells


def _attention(pool: PagePool, slots: Tensor, blocks: Tensor, view: Tensor, size: int) -> Attend:
    """Cells see what stands in the blocks before theirs, and their own copy of a block; what stands sees its own block
    too. ``slots`` are those of the positions that the pages hold."""
    before = torch.arange(len(slots), device=slots.device) // size
    stands = view == 0
    in_pages = before[None] < blocks[:, None]
    among = stands[None] & (blocks[None] < blocks[:, None])
    among |= (view[None] == view[:, None]) & (blocks[None] == blocks[:, None])
    mask = torch.cat((in_pages, among), 1)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dim, heads = q.shape[3], k.shape[1]
        held = (pages[layer].view(-1, heads, dim).index_select(0, slots) for pages in (pool.k, pool.v))
        k, v = (torch.cat((old.transpose(0, 1)[None], new), 2) for old, new in zip(held, (k, v), strict=True))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != heads)

    return attend


def _likeliest(
    model: SdarModel, hidden: Tensor, reply: Sequence[int], places: list[int], banned: list[int]
) -> list[Fork]:
    found = []
    written = torch.tensor([reply[place] for place in places], device=hidden.device)
    for start in range(0, len(places), _HEAD_CELLS):
        part = slice(start, start + _HEAD_CELLS)
        logits = model.head(hidden[part]).float()
        logits[:, model.config.mask_token_id] = -torch.inf
        logp = logits.log_softmax(-1)
        logp[:, banned] = -torch.inf
        logp.scatter_(1, written[part, None], -torch.inf)
        top = logp.topk(min(_PER_PLACE, logp.shape[1]), dim=1)
        for place, values, tokens in zip(
            places[part], top.values.tolist(), top.indices.tolist(), strict=True
        ):
            found += [Fork(place, t, x) for x, t in zip(values, tokens, strict=True) if x > -torch.inf]
    return sorted(found, key=lambda fork: (-fork.logp, fork.place, fork.token))
