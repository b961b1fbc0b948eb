"""A reply's trajectory as training rows: which tokens were drawn when, and what the model saw when it drew them.

Source: TraceRL (arXiv 2509.06949). Everything is on the decoder's own grid of blocks, from position 0 of the prompt,
and in the decoder's own ids: nothing is decoded to text and encoded again.

A row holds one or more groups. A group's replies share the prompt's whole blocks, stored once; each reply is a branch
of it: the rest of the prompt and the reply, clean, and then for each round the blocks in which something was drawn in
that round, with what was not known yet hidden. Blocks that nobody sees are left out, which changes no logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Reply:
    """What the decoder wrote after a prompt, token for token, with its stop token if there is one."""

    tokens: Sequence[int]
    step_map: Sequence[int]
    """For each token the step inside its block at which it was unmasked, from 0."""
    advantage: float


@dataclass(frozen=True)
class Group:
    """The replies to one prompt (ids)."""

    prompt: Sequence[int]
    replies: Sequence[Reply]


@dataclass(frozen=True)
class NoisyBlock:
    """One block in one round: positions ``[start, start + B)``, and which of them are hidden and which drawn now."""

    start: int
    hidden: list[int]
    """Positions whose tokens the model did not see."""
    drawn: list[int]
    """Those of them that were unmasked in this round: the ones that carry loss."""


def rounds(prompt_length: int, step_map: Sequence[int], block_size: int, shrink: int = 1) -> list[NoisyBlock]:
    """Every block of a reply once for each of its steps, in order: at most ``block_size`` of each.

    ``shrink`` merges that many consecutive steps. Positions after the end of the reply are hidden throughout.
    """
    found = []
    end = prompt_length + len(step_map)
    for start in range(prompt_length // block_size * block_size, end, block_size):
        first, last = max(start, prompt_length), min(start + block_size, end)
        step = {at: step_map[at - prompt_length] // shrink for at in range(first, last)}
        for now in sorted(set(step.values())):
            hidden = [at for at, then in step.items() if then >= now] + list(range(last, start + block_size))
            found.append(NoisyBlock(start, hidden, [at for at, then in step.items() if then == now]))
    return found


@dataclass(frozen=True)
class Rows:
    """Packed rows; every array is ``[rows, length]``. Groups of a row differ in ``document`` (padding has its own).

    ``branch`` is 0 for the shared part of a prompt, else the number of the reply; ``copy`` is 0 for clean tokens, else
    the number of the noisy block within the branch. ``ids`` has the mask id where a token is hidden, ``target`` the
    token that was drawn there. ``loss`` marks drawn tokens, ``advantage`` is that of their reply.
    """

    ids: NDArray[np.int64]
    target: NDArray[np.int64]
    position: NDArray[np.int64]
    document: NDArray[np.int64]
    branch: NDArray[np.int64]
    copy: NDArray[np.int64]
    loss: NDArray[np.bool_]
    advantage: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


_NAMES = ("ids", "target", "position", "branch", "copy", "loss", "advantage")
_Piece = dict[str, NDArray]
"""The arrays of consecutive places of a row, by name; ``document`` is given when the row is laid out."""


def pack(
    groups: Sequence[Group], *, length: int, block_size: int, mask_id: int, shrink: int = 1
) -> tuple[Rows, int]:
    """``groups`` in rows of ``length`` places, and the number of replies that are too long for one (left out).

    A group that does not fit into the room that is left goes on in the next row, with its prompt once more.
    """
    rows: list[list[tuple[int, _Piece]]] = [[]]
    used, documents, left_out = 0, 0, 0
    for group in groups:
        shared = _shared(group, block_size)
        size = len(shared["ids"])
        open_here = False
        for number, reply in enumerate(group.replies, 1):
            branch = _branch(group.prompt, reply, number, block_size, mask_id, shrink)
            need = len(branch["ids"])
            if size + need > length:
                left_out += 1
                continue
            if used + need + (0 if open_here else size) > length:
                rows.append([])
                used, open_here = 0, False
            if not open_here:
                documents += 1
                rows[-1].append((documents, shared))
                used, open_here = used + size, True
            rows[-1].append((documents, branch))
            used += need
    return _lay_out([row for row in rows if row], length), left_out


def _shared(group: Group, block_size: int) -> _Piece:
    size = len(group.prompt) // block_size * block_size
    ids = np.asarray(group.prompt[:size], np.int64)
    return _piece(ids, ids, np.arange(size), 0, np.zeros(size, np.int64))


def _branch(
    prompt: Sequence[int], reply: Reply, number: int, block_size: int, mask_id: int, shrink: int
) -> _Piece:
    text = np.asarray([*prompt, *reply.tokens], np.int64)
    first = len(prompt) // block_size * block_size
    last = (len(text) - 1) // block_size * block_size  # the last block is seen by no later one
    parts = [
        _piece(text[first:last], text[first:last], np.arange(first, last), number, np.zeros(last - first))
    ]
    padded = np.concatenate((text, np.full(-len(text) % block_size, mask_id)))
    for copy, block in enumerate(rounds(len(prompt), reply.step_map, block_size, shrink), 1):
        at = np.arange(block.start, block.start + block_size)
        ids = padded[at]
        ids[np.isin(at, block.hidden)] = mask_id
        part = _piece(ids, padded[at], at, number, np.full(block_size, copy, np.int64))
        part["loss"] = np.isin(at, block.drawn)
        part["advantage"] = np.where(part["loss"], np.float32(reply.advantage), np.float32(0))
        parts.append(part)
    return {name: np.concatenate([part[name] for part in parts]) for name in _NAMES}


def _piece(ids: NDArray, target: NDArray, position: NDArray, branch: int, copy: NDArray) -> _Piece:
    size = len(ids)
    return {
        "ids": ids,
        "target": target,
        "position": position,
        "branch": np.full(size, branch, np.int64),
        "copy": copy,
        "loss": np.zeros(size, np.bool_),
        "advantage": np.zeros(size, np.float32),
    }


def _lay_out(rows: Sequence[Sequence[tuple[int, _Piece]]], length: int) -> Rows:
    shape = (len(rows), length)
    laid = Rows(
        *(np.zeros(shape, np.int64) for _ in range(6)),
        loss=np.zeros(shape, np.bool_),
        advantage=np.zeros(shape, np.float32),
    )
    for row, pieces in enumerate(rows):
        at = 0
        for document, piece in pieces:
            places = slice(at, at + len(piece["ids"]))
            for name in _NAMES:
                getattr(laid, name)[row, places] = piece[name]
            laid.document[row, places] = document
            at = places.stop
    return laid
