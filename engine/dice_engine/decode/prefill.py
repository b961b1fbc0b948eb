"""Keys and values of prompts by the kernels of ``fused.py``: on a GPU a CUDA graph for each of a few lengths.

Launching the kernels one by one takes longer than most prompts need, above all than the few tokens behind a beginning
that is known already. So a prompt's tokens are filled up to the next length with cells that take no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dice_engine.decode.fused import FusedNetwork
from dice_engine.decode.paged import Cells
from dice_engine.decode.pages import TRASH, PagePool

LENGTHS = (128, 256, 384, 512, 768, 1024, 1280, 1536, 2048)


class Prefill:
    """Writes to ``pool``. ``pages``: of the longest prompt; ``block_size``: of the staircase mask; ``memory``: of the
    graphs, None: without graphs."""

    def __init__(
        self,
        network: FusedNetwork,
        pool: PagePool,
        pages: int,
        block_size: int,
        memory: Any,
    ) -> None:
        self.network, self.pool, self.pages, self.block_size = network, pool, pages, block_size
        self._inputs = torch.zeros(pages + 4 * LENGTHS[-1], dtype=torch.int64, device=pool.k.device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._memory = memory

    def run(self, ids: Sequence[int], start: int, pages: Sequence[int]) -> None:
        """``ids`` are whole blocks of a prompt from position ``start`` on, ``pages`` the prompt's."""
        for first in range(0, len(ids), LENGTHS[-1] // self.block_size * self.block_size):
            part = ids[first : first + LENGTHS[-1] // self.block_size * self.block_size]
            self._run(part, start + first, pages)

    def _run(self, ids: Sequence[int], start: int, pages: Sequence[int]) -> None:
        length = next(length for length in LENGTHS if length >= len(ids))
        inputs = self._told(ids, start, pages, length)
        self._inputs[: inputs.numel()].copy_(inputs, non_blocking=True)
        if length in self._graphs:
            self._graphs[length].replay()
            return
        self._body(length)
        if self._memory is None:
            return
        graph = torch.cuda.CUDAGraph()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            self._body(length)
        self._graphs[length] = graph

    def _told(self, ids: Sequence[int], start: int, pages: Sequence[int], length: int) -> Tensor:
        """The prompt's pages, then token, position, slot and sight of ``length`` cells: int64, on the host."""
        count, size = len(ids), self.pool.size
        told = torch.zeros(
            self.pages + 4 * length, dtype=torch.int64, pin_memory=self._inputs.device.type == "cuda"
        )
        table, cells = told[: self.pages], told[self.pages :].view(4, length)
        table[: len(pages)] = torch.tensor(pages)
        position = torch.arange(length).clamp_max_(count - 1) + start
        cells[0, :count] = torch.tensor(ids)
        cells[1] = position
        cells[2] = TRASH * size + torch.arange(length) % size
        cells[2, :count] = (table[position // size] * size + position % size)[:count]
        cells[3] = (position // self.block_size + 1) * self.block_size
        return told

    def _body(self, length: int) -> None:
        table = self._inputs[None, : self.pages]
        cells = self._inputs[self.pages : self.pages + 4 * length].view(4, length)
        ids, positions, slots, visible = cells.unbind(0)
        self.network.hidden(ids, Cells(table, slots, positions, visible, length), keys_only=True)
