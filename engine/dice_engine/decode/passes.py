"""One pass: network, drawing and unmasking for all rows of a batch; on a GPU replayed as a CUDA graph."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dice_engine.decode.paged import Grid, grid_attention, prefill_attention
from dice_engine.decode.pages import TRASH, PagePool
from dice_engine.decode.rows import Rows
from dice_engine.decode.sampling import Needs
from dice_engine.model.network import SdarModel

if TYPE_CHECKING:
    from dice_engine.decode.fused import FusedNetwork
    from dice_engine.decode.prefill import Prefill


class Shape(NamedTuple):
    """All that makes two passes the same program."""

    rows: int
    fold: bool
    """With the block before the masked one, for rows whose keys and values of it are not stored yet."""
    pages: int
    """Pages of the longest row."""
    needs: Needs


def can_fuse(device: torch.device) -> bool:
    """Whether the Triton kernels run here: it comes with torch for CUDA, and needs a C compiler at the first run."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
        and any(name and shutil.which(name) for name in compilers)
    )


class Passes:
    """Runs passes over ``rows`` and ``table`` (int64 ``[rows, pages]``, the pages of each row in order).

    ``static``: every cell goes through the network, so a shape is always the same program; on a GPU it is captured
    when it is first met and replayed from then on. Otherwise only the cells that hold a token are computed. ``fused``:
    by the kernels of ``fused.py``.
    """

    def __init__(
        self, model: SdarModel, pool: PagePool, rows: Rows, table: Tensor, static: bool, fused: bool
    ) -> None:
        self.model, self.pool, self.rows, self.table, self.static = model, pool, rows, table, static
        self._graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._memory = torch.cuda.graph_pool_handle() if static and rows.device.type == "cuda" else None
        self._fused: FusedNetwork | None = None
        self._prefill: Prefill | None = None
        if fused:
            from dice_engine.decode.fused import FusedNetwork  # needs Triton
            from dice_engine.decode.prefill import Prefill

            self._fused = FusedNetwork(model, pool)
            self._prefill = Prefill(self._fused, pool, table.shape[1], rows.size, self._memory)

    @property
    def any_length(self) -> bool:
        """The pages of the longest row need not be known: rows are read as far as each has come."""
        return self._fused is not None

    def prefill(self, ids: Sequence[int], start: int, pages: Sequence[int]) -> None:
        """Keys and values of ``ids``, whole blocks of a prompt from position ``start`` on, to the prompt's ``pages``,
        which hold what stands before."""
        if self._prefill is not None:
            self._prefill.run(ids, start, pages)
            return
        device, end = self.model.device, start + len(ids)
        at = torch.arange(start, end, device=device)[None]
        attend = prefill_attention(self.pool, torch.tensor(pages, device=device), start, end, self.rows.size)
        self.model.model(torch.tensor(ids, device=device)[None], at, attend)

    @torch.inference_mode()
    def run(self, shape: Shape) -> None:
        if self._memory is None:
            self._body(shape)
            return
        graph = self._graphs.get(shape)
        if graph is None:
            graph = self._graphs[shape] = self._capture(shape)
        graph.replay()

    def _capture(self, shape: Shape) -> torch.cuda.CUDAGraph:
        if self._fused is not None:
            drawn = shape.rows * self.rows.size
            self._fused.prepare(2 * drawn if shape.fold else drawn, drawn)
        # Libraries set themselves up on a first run, which must not be captured and whose step must not count.
        state = [part.clone() for part in (self.rows.whole, self.rows.real)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._body(shape)
        torch.cuda.current_stream().wait_stream(side)
        for part, saved in zip((self.rows.whole, self.rows.real), state, strict=True):
            part.copy_(saved)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process may allocate meanwhile: training decodes while it updates.
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            self._body(shape)
        return graph

    def _body(self, shape: Shape) -> None:
        if self._fused is not None:
            self._fused_body(self._fused, shape)
        else:
            self._plain_body(shape)

    def _fused_body(self, network: FusedNetwork, shape: Shape) -> None:
        from dice_engine.decode import fused_step

        rows, size = self.rows.first(shape.rows), self.rows.size
        width = 2 * size if shape.fold else size
        ids, cells = fused_step.layout(rows, self.table[: shape.rows], self.pool.size, width)
        hidden = network.hidden(ids, cells).view(shape.rows, width, -1)[:, -size:]
        # Contiguous: of a block of one token, reshape gives a view of every other row.
        logits = network.logits(hidden.reshape(shape.rows * size, -1).contiguous())
        if shape.needs.filters:
            rows.unmask(logits.view(shape.rows, size, -1), shape.needs)
        else:
            fused_step.unmask(rows, logits, shape.needs)

    def _plain_body(self, shape: Shape) -> None:
        rows, size = self.rows.first(shape.rows), self.rows.size
        table = self.table[: shape.rows, : shape.pages]
        place = torch.arange(-size if shape.fold else 0, size, device=rows.device)
        positions = rows.start[:, None] + place
        ids = torch.cat((rows.before, rows.block), 1) if shape.fold else rows.block
        used = rows.active.bool()[:, None] & (rows.fresh.bool()[:, None] | (place >= 0))
        visible = (positions.div(size, rounding_mode="floor") + 1) * size
        positions = positions.clamp_min(0)
        trash = TRASH * self.pool.size + (place + size) % self.pool.size
        slots = torch.where(used, self.pool.slots(table, positions), trash)
        tokens = None
        if not self.static:
            cells = used.flatten().nonzero()[:, 0]
            token_of_cell = (used.flatten().cumsum(0) - 1).clamp_min(0)
            tokens = (cells, token_of_cell)
            ids, positions = ids.flatten()[cells][None], positions.flatten()[cells][None]
            slots = slots.flatten()[cells]
        grid = Grid(table, slots.flatten(), visible.clamp_min(1), tokens)
        hidden = self.model.model(ids, positions, grid_attention(self.pool, grid))
        if tokens is not None:
            hidden = hidden[0, tokens[1]].view(shape.rows, place.shape[0], -1)
        rows.unmask(self.model.head(hidden[:, -size:]), shape.needs)
