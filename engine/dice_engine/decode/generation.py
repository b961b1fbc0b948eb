"""The decoder that belongs to a model, and ``generate``: replies to one prompt in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dice_engine.decode.batch import MAX_ROWS, BatchDecoder, decode_all
from dice_engine.decode.jobs import DecodeRequest
from dice_engine.decode.pages import PagePool, page_positions
from dice_engine.decode.strategies import DecodeOptions
from dice_engine.model.network import SdarModel

CONTEXTS = {"cpu": 8, "cuda": 64}
"""How many whole contexts the pages of a decoder hold, where nothing else is said."""


def decoder_of(model: SdarModel, block_size: int | None = None, memory: int | None = None) -> BatchDecoder:
    """The decoder of ``model`` for ``block_size``, made at the first call and kept as long as the model.

    ``memory``: bytes for keys and values, of which no more is taken than every row can use; None: enough for
    ``CONTEXTS``, but half of what is free on a GPU at most.
    """
    size = block_size or model.config.block_size
    kept = model.decoders
    if size in kept and not kept[size].fits(model):  # the network has moved since
        del kept[size]
    if size not in kept:
        page = PagePool.bytes_per_page(model, size)
        context = -(-model.config.max_position_embeddings // page_positions(size)) + 1
        pages = CONTEXTS.get(model.device.type, CONTEXTS["cpu"]) * context
        if memory is not None:
            pages = min(memory // page, MAX_ROWS * context)
        elif model.device.type == "cuda":
            pages = min(pages, torch.cuda.mem_get_info(model.device)[0] // 2 // page)
        # Pages of a CPU cost nothing until they are used.
        kept[size] = BatchDecoder(model, size, pages=max(1, pages))
    return kept[size]


@dataclass(frozen=True)
class Generation:
    """The replies of a ``generate`` call: lists have one entry a candidate."""

    tokens: list[list[int]]
    step_map: list[list[int]]
    """For each token the step inside its block at which it was unmasked, from 0."""
    forward_count: int
    """Passes of the network for the whole batch, the prefill not counted."""


def generate(
    model: SdarModel,
    input_ids: Sequence[int] | Tensor,
    max_new_tokens: int = 256,
    *,
    strategy: str = "low_confidence_dynamic",
    steps: int | None = None,
    threshold: float = 0.9,
    gamma: float = 0.3,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    n: int = 1,
    block_size: int | None = None,
    stop_ids: Sequence[int] | None = None,
    forced: Sequence[int] = (),
) -> Generation:
    """Decode ``n`` replies to one prompt (ids ``[P]`` or ``[1, P]``) as one batch.

    Candidate i draws with seed + i: the same tokens as a single run with that seed. ``stop_ids`` None: those of the
    config. ``forced``: tokens that every reply begins with. See :class:`DecodeOptions` for the rest.
    """
    if isinstance(input_ids, Tensor):
        if input_ids.dim() == 2 and input_ids.shape[0] == 1:
            input_ids = input_ids[0]
        if input_ids.dim() != 1:
            raise ValueError(
                f"input_ids must be one prompt, [P] or [1, P]; its shape is {list(input_ids.shape)}"
            )
        input_ids = input_ids.tolist()
    options = DecodeOptions(max_new_tokens, strategy, steps, threshold, gamma, top_k, top_p)  # type: ignore[arg-type]
    request = DecodeRequest(
        input_ids, options, [seed + i for i in range(n)], [temperature] * n, stop_ids, forced
    )
    decoder = decoder_of(model, block_size)
    job = decoder.submit(request)
    try:
        decode_all(decoder, [job])
    finally:
        decoder.cancel(job)
    replies = job.replies
    return Generation([r.tokens for r in replies], [r.step_map for r in replies], job.forward_count)
