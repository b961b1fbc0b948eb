"""The matrix products of a decoding pass, each by what is fastest here: one fused kernel of ours, or the library.

Which tile shapes read a matrix fastest differs from GPU to GPU and from matrix to matrix, so for networks that are
large enough to repay it the candidates are timed once, over the matrices of all layers and so with a cold cache.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from dice_engine.decode.kernels import gate_kernel, linear_kernel, norm_kernel
from dice_engine.decode.launches import launch_options

log = logging.getLogger(__name__)

FEW_TOKENS = 64
"""Up to this many, our kernel is a candidate; beyond, products are the library's."""
OURS = (torch.bfloat16, torch.float16)
"""In float32 our kernel has nothing to win."""
REPAYS_TIMING = 200_000_000
"""Bytes of matrices of one kind from which on candidates are timed."""


AHEAD = 512
"""Values of each row of a matrix that are asked for while the former kernel ends; see ``linear_kernel``."""


class Tile(NamedTuple):
    """How our kernel cuts a product: see ``linear_kernel``."""

    slices: int
    columns: int
    depth: int
    warps: int
    stages: int
    inside: bool = True
    """The norm: inside the product, or a kernel of its own before it."""


TILES = (
    Tile(4, 32, 64, 4, 4),
    Tile(4, 32, 64, 4, 6),
    Tile(4, 16, 64, 4, 8),
    Tile(4, 16, 64, 4, 6),
    Tile(4, 16, 128, 4, 5),
    Tile(8, 16, 64, 8, 5),
    Tile(4, 64, 64, 8, 4),
    Tile(4, 32, 64, 4, 3),
)


class Kind(NamedTuple):
    """What a product is made of besides its matrix."""

    name: str
    norm: bool = False
    gated: bool = False
    add: bool = False


class Products:
    """``matrices`` of one kind (one a layer), with the ``norms`` that stand before them, if any."""

    def __init__(self, kind: Kind, matrices: Sequence[Tensor], norms: Sequence[Tensor], eps: float) -> None:
        self.kind, self.matrices, self.norms, self.eps = kind, list(matrices), list(norms), eps
        self.columns = matrices[0].shape[0] // (2 if kind.gated else 1)
        self.depth = matrices[0].shape[1]
        # 16 bytes are the least that can be asked for.
        self._ahead = AHEAD if self.depth % 8 == 0 and self.depth >= AHEAD else 0
        self.precision = "ieee" if matrices[0].dtype == torch.float32 else "tf32"
        self._launch = launch_options(matrices[0].device)
        self._best: dict[int, Tile | None] = {}

    def __call__(self, layer: int, x: Tensor, add: Tensor | None = None) -> Tensor:
        """The product of layer ``layer`` for ``x [m, k]``, plus ``add [m, n]`` where the kind says so."""
        tile = self._tile(x.shape[0])
        return self._library(layer, x, add) if tile is None else self._ours(layer, x, add, tile)

    def prepare(self, m: int) -> None:
        """Choose for ``m`` tokens, by the clock where that is worth it. Not while capturing."""
        rows, matrix = _rows(m), self.matrices[0]
        if rows in self._best or m > FEW_TOKENS or matrix.dtype not in OURS:
            return
        x = torch.randn(m, self.depth, device=matrix.device).to(matrix.dtype)
        add = x.new_zeros(m, self.columns) if self.kind.add else None
        size = sum(matrix.numel() * matrix.element_size() for matrix in self.matrices)
        if size < REPAYS_TIMING:
            first = TILES[0] if rows <= 16 else None
            self._best[rows] = first if first and self._fits(x, add, first) else None
            return
        times = self._times(x, add)
        best = min(times, key=lambda tile: times[tile])
        self._best[rows] = best
        rate = size / times[best] / 1e12
        log.info("%s for %d tokens: %s, %.2f TB/s", self.kind.name, m, best or "the library", rate)

    def _times(self, x: Tensor, add: Tensor | None) -> dict[Tile | None, float]:
        """Seconds for the products of all layers with each tile, and (None) with the library."""
        runs: dict[Tile | None, Callable[[int], Tensor]] = {
            None: lambda layer: self._library(layer, x, add),
            **{
                tile: lambda layer, tile=tile: self._ours(layer, x, add, tile)
                for tile in TILES
                if self._fits(x, add, tile)
            },
        }
        return {tile: _seconds(run, len(self.matrices)) for tile, run in runs.items()}

    def _fits(self, x: Tensor, add: Tensor | None, tile: Tile) -> bool:
        """Whether this GPU has the shared memory, and this Triton such small products."""
        try:
            self._ours(0, x, add, tile)
        except (OutOfResources, CompilationError):
            return False
        return True

    def _tile(self, m: int) -> Tile | None:
        return None if m > FEW_TOKENS else self._best.get(_rows(m))

    def _ours(self, layer: int, x: Tensor, add: Tensor | None, tile: Tile) -> Tensor:
        m = x.shape[0]
        norm = self.kind.norm and tile.inside
        if self.kind.norm and not norm:
            x = self._normed(layer, x)
        out = x.new_empty(m, self.columns)
        linear_kernel[(triton.cdiv(self.columns, tile.columns),)](
            *(x, self.matrices[layer], self.norms[layer] if norm else x, x if add is None else add),
            *(out, m, self.columns, self.depth, self.eps),
            NORM=norm,
            GATED=self.kind.gated,
            ADD=self.kind.add,
            PRECISION=self.precision,
            SLICES=tile.slices,
            BM=_rows(m),
            BN=tile.columns,
            BK=tile.depth,
            AHEAD=self._ahead if self._launch["PDL"] else 0,
            THREADS=32 * tile.warps,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **self._launch,
        )
        return out

    def _normed(self, layer: int, x: Tensor) -> Tensor:
        m, k = x.shape
        normed = torch.empty_like(x)
        block = triton.next_power_of_2(k)
        norm_kernel[(m,)](x, self.norms[layer], normed, k, self.eps, BLOCK=block, num_warps=8, **self._launch)
        return normed

    def _library(self, layer: int, x: Tensor, add: Tensor | None) -> Tensor:
        m = x.shape[0]
        if self.kind.norm:
            x = self._normed(layer, x)
        matrix = self.matrices[layer].t()
        out = torch.mm(x, matrix) if add is None else torch.addmm(add, x, matrix)
        if not self.kind.gated:
            return out
        gated = x.new_empty(m, self.columns)
        gate_kernel[(triton.cdiv(self.columns, 1024), m)](
            out, gated, self.columns, BLOCK=1024, **self._launch
        )
        return gated


def _rows(m: int) -> int:
    return max(8, triton.next_power_of_2(m))


def _seconds(run: Callable[[int], Tensor], layers: int) -> float:
    """The time of all layers' products in turn, as a graph so that launching does not count."""
    run(0)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for layer in range(layers):
            run(layer)
    best = float("inf")
    for _ in range(4):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1000)
    return best
