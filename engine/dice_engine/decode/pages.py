"""Keys and values in pages: candidates share the pages of their prompt, and requests those of a common beginning.

A page holds the same number of positions of every layer. A page that is full of prompt can be found again by what it
holds and everything before it, also by later requests, until its place is needed.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from dice_engine.decode.upload import uploaded
from dice_engine.model.network import SdarModel

PAGE = 64
TRASH = 0
"""A page that nobody reads: where cells that take no part in a pass write."""


def page_positions(block_size: int) -> int:
    """Positions of a page: whole blocks, about 64, so that a full page depends on nothing behind it."""
    return block_size * max(1, PAGE // block_size)


class PagePool:
    """``count`` pages of keys and values, ``k`` and ``v`` ``[layers, pages, positions, kv_heads, head_dim]``."""

    def __init__(self, model: SdarModel, block_size: int, count: int) -> None:
        c = model.config
        self.size, self.count = page_positions(block_size), count + 1
        self.query_heads = c.num_attention_heads
        shape = (c.num_hidden_layers, self.count, self.size, c.num_key_value_heads, c.head_dim)
        self.k = torch.empty(shape, device=model.device, dtype=model.dtype)
        self.v = torch.empty_like(self.k)
        # Slots that no query sees are multiplied by zero, and 0 * NaN would be NaN; see `take` for the other pages.
        self.k[:, TRASH], self.v[:, TRASH] = 0, 0
        self._users = [0] * self.count
        self._free = list(range(self.count - 1, TRASH, -1))
        self._clean = [False] * self.count
        self._known: OrderedDict[bytes, int] = OrderedDict()
        """Full prompt pages by what they hold, the one used last at the end."""
        self._key_of: dict[int, bytes] = {}

    @staticmethod
    def bytes_per_page(model: SdarModel, block_size: int) -> int:
        c = model.config
        values = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * page_positions(block_size)
        return values * model.dtype.itemsize

    def pages_of(self, positions: int) -> int:
        return -(-positions // self.size)

    @property
    def available(self) -> int:
        """Pages that can be taken now; those only kept for later requests count."""
        return len(self._free) + sum(not self._users[page] for page in self._known.values())

    def take(self, count: int) -> list[int]:
        """``count`` pages with one user each; the caller has asked ``available``."""
        while len(self._free) < count:
            key = next(key for key, page in self._known.items() if not self._users[page])
            page = self._known.pop(key)
            del self._key_of[page]
            self._free.append(page)
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._users[page] = 1
        dirty = [page for page in pages if not self._clean[page]]
        if dirty:
            at = uploaded(dirty, self.k.device)
            self.k.index_fill_(1, at, 0)
            self.v.index_fill_(1, at, 0)
            for page in dirty:
                self._clean[page] = True
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """One more user for each of ``pages``."""
        for page in pages:
            self._users[page] += 1

    def give_back(self, pages: Sequence[int], broken: bool = False) -> None:
        """One user less. ``broken``: they may hold not-a-number and are forgotten and cleared before the next use."""
        for page in pages:
            self._users[page] -= 1
            if broken:
                self._clean[page] = False
                key = self._key_of.pop(page, None)
                if key is not None:
                    del self._known[key]
            if not self._users[page] and page not in self._key_of:
                self._free.append(page)

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The known pages that hold the longest beginning of ``tokens``; the caller becomes a user of them."""
        found = []
        for key in self._keys(tokens):
            page = self._known.get(key)
            if page is None:
                break
            self._known.move_to_end(key)
            found.append(page)
        self.share(found)
        return found

    def remember(self, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """Let later requests find ``pages``, which hold the beginning of ``tokens``."""
        for key, page in zip(self._keys(tokens), pages, strict=False):
            if key not in self._known and page not in self._key_of:
                self._known[key] = page
                self._key_of[page] = key

    def forget(self) -> None:
        """No page is found by later requests any more."""
        self._free += [page for page in self._known.values() if not self._users[page]]
        self._known.clear()
        self._key_of.clear()

    def copy(self, source: int, targets: Sequence[int]) -> None:
        at = uploaded(list(targets), self.k.device)
        for part in (self.k, self.v):
            page = part[:, source : source + 1].clone()  # index_copy_ refuses to read what it writes to
            part.index_copy_(1, at, page.expand(-1, len(targets), -1, -1, -1))

    def slots(self, table: Tensor, positions: Tensor) -> Tensor:
        """Places ``[...]`` in a layer's flattened pages, for ``positions [rows, ...]`` and ``table [rows, pages]``.
        Positions past the table (of rows that have left) are given its last page."""
        page = table.gather(1, (positions // self.size).clamp_max(table.shape[1] - 1))
        return page * self.size + positions % self.size

    def _keys(self, tokens: Sequence[int]) -> list[bytes]:
        keys, key = [], b""
        for start in range(0, len(tokens) - self.size + 1, self.size):
            page = array("q", tokens[start : start + self.size]).tobytes()
            key = hashlib.blake2b(key + page, digest_size=16).digest()
            keys.append(key)
        return keys
