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
_PLACES = 64
"""Places that are looked at closely."""
_HEAD_CELLS = 256
"""Cells whose logits are held at a time."""


@dataclass(frozen=True)
class Fork:
    """``token`` instead of the one at ``place`` of a reply, where it had the log-probability ``logp``."""

    place: int
    token: int
    logp: float


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

    ``steps``: the step inside its block at which each token was unmasked. A first pass over the reply finds the places
    where the network was least sure in that step. Another token may have been likely there only together with others
    in front of it, so a second pass asks at these places what follows the tokens that do stand in front.
    """
    tokens, given = [*prompt, *reply], len(prompt)
    when = [-1] * given + list(steps)
    known = pool.find(tokens)
    try:
        review = _Review(model, pool, tokens, known, given, block_size)
        moments: dict[tuple[int, int], list[int]] = {}
        for place in range(given, len(tokens)):
            moments.setdefault((place // block_size, when[place]), []).append(place)
        unsure = review.forks(
            [
                _State(block, [at for at in review.block(block) if when[at] < step], asked)
                for (block, step), asked in moments.items()
            ],
            [*banned],
        )
        places = list(dict.fromkeys(fork.place for fork in unsure))[:_PLACES]
        states = []
        for place in places:
            block = place // block_size
            states.append(_State(block, [at for at in review.block(block) if at < place], [place]))
        found = review.forks(states, [*banned])
    finally:
        pool.give_back(known)
    return [Fork(fork.place - given, fork.token, fork.logp) for fork in found]


@dataclass(frozen=True)
class _State:
    """A block with the tokens at the positions ``shown`` and masks elsewhere; what could be at ``asked``?"""

    block: int
    shown: list[int]
    asked: list[int]


class _Review:
    """Asks the network about states of the blocks of one finished reply, as many as there are in one pass.

    What stands before them comes from the pages that are ``known``; the rest of it takes part in the pass.
    """

    def __init__(
        self,
        model: SdarModel,
        pool: PagePool,
        tokens: Sequence[int],
        known: list[int],
        given: int,
        block_size: int,
    ) -> None:
        self._model, self._pool, self._tokens, self._size = model, pool, tokens, block_size
        self._given = given
        self._last = (len(tokens) - 1) // block_size * block_size
        """Where the last block begins: no block of the reply sees what stands from there on."""
        self._base = min(len(known) * pool.size, self._last)
        device = model.device
        at = torch.arange(self._base, device=device)
        self._slots = pool.slots(torch.tensor([known or [0]], device=device), at[None])[0]

    def block(self, number: int) -> range:
        """The positions of a block that have tokens."""
        return range(number * self._size, min((number + 1) * self._size, len(self._tokens)))

    def forks(self, states: Sequence[_State], banned: list[int]) -> list[Fork]:
        """The likeliest other tokens at the asked positions (the forks' places), likeliest first."""
        mask = self._model.config.mask_token_id
        ids, positions = [*self._tokens[self._base : self._last]], [*range(self._base, self._last)]
        view, cells, places = [0] * len(ids), [], []
        for number, state in enumerate(states, 1):
            start = state.block * self._size
            shown = set(state.shown)
            cells += [len(ids) + place - start for place in state.asked]
            places += state.asked
            ids += [self._tokens[at] if at in shown else mask for at in range(start, start + self._size)]
            positions += range(start, start + self._size)
            view += [number] * self._size
        device = self._model.device
        at = torch.tensor(positions, device=device)
        attend = self._attention(at // self._size, torch.tensor(view, device=device))
        hidden = self._model.model(torch.tensor([ids], device=device), at[None], attend)[0]
        return self._likeliest(hidden[cells], places, [*banned, mask])

    def _attention(self, blocks: Tensor, view: Tensor) -> Attend:
        """Cells see what stands (``view`` 0) in the blocks before theirs, and all of their own block in their view."""
        pool, slots = self._pool, self._slots
        before = torch.arange(len(slots), device=slots.device) // self._size
        earlier = (view == 0)[None] & (blocks[None] < blocks[:, None])
        together = (view[None] == view[:, None]) & (blocks[None] == blocks[:, None])
        mask = torch.cat((before[None] < blocks[:, None], earlier | together), 1)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            dim, heads = q.shape[3], k.shape[1]
            held = (pages[layer].view(-1, heads, dim).index_select(0, slots) for pages in (pool.k, pool.v))
            k, v = (
                torch.cat((old.transpose(0, 1)[None], new), 2) for old, new in zip(held, (k, v), strict=True)
            )
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != heads)

        return attend

    def _likeliest(self, hidden: Tensor, places: list[int], banned: list[int]) -> list[Fork]:
        found = []
        written = torch.tensor([self._tokens[place] for place in places], device=hidden.device)
        for start in range(0, len(places), _HEAD_CELLS):
            part = slice(start, start + _HEAD_CELLS)
            logits = self._model.head(hidden[part]).float()
            logits[:, self._model.config.mask_token_id] = -torch.inf
            logp = logits.log_softmax(-1)
            logp[:, banned] = -torch.inf
            logp.scatter_(1, written[part, None], -torch.inf)
            top = logp.topk(_PER_PLACE, dim=1)
            for place, values, tokens in zip(
                places[part], top.values.tolist(), top.indices.tolist(), strict=True
            ):
                found += [Fork(place, t, x) for x, t in zip(values, tokens, strict=True)]
        return sorted(found, key=lambda fork: (-fork.logp, fork.place, fork.token))
