"""Memory somewhere else for every turn under the clock.

Where buffers lie in the GPU's memory makes the same kernel up to 5 % faster or slower, and two processes keep theirs
where they got it: measured once, that would pass for a gain. So each turn gets other pages, and the differences
between turns become part of the interval.
"""

from __future__ import annotations

import random

import torch

_PAGE = 2 << 20
"""Bytes of a page of the GPU's memory."""
_MOST_PAGES = 128


class Placement:
    """Moves where the tensors that are made next will lie. Without CUDA there is nothing to move."""

    def __init__(self, device: torch.device):
        self._device = device
        self._random = random.Random()
        self._spacer: torch.Tensor | None = None

    def move(self) -> None:
        """Give free memory back and take some pages out of its way. Call when the last turn's tensors are gone."""
        if self._device.type != "cuda":
            return
        self._spacer = None
        torch.cuda.empty_cache()
        room = torch.cuda.mem_get_info(self._device)[0] // (8 * _PAGE)
        pages = self._random.randint(1, max(1, min(_MOST_PAGES, room)))
        self._spacer = torch.empty(pages * _PAGE, dtype=torch.uint8, device=self._device)
