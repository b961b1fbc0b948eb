"""Block decoding: N candidates of one prompt as one batch, each going through its blocks at its own pace.

A pass takes, for each candidate, the masked block it is at; a candidate that has just finished a block brings that
block along ([finished block | masked block] under the staircase mask), which commits its keys and values without a
forward of its own. Candidates that are done leave the batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dice_engine.decode.cache import Layout, OwnCache, SharedPrefix
from dice_engine.decode.sampling import counter_noise, draw
from dice_engine.decode.strategies import DecodeOptions, choose, quota
from dice_engine.model.network import SdarModel


class DecodeError(Exception):
    """The network gave something that cannot be decoded (not-a-number logits)."""


@dataclass(frozen=True)
class BlockEvent:
    """One candidate has finished a block. ``tokens`` are its new tokens, cut at the end of the reply."""

    candidate: int
    tokens: list[int]
    steps: list[int]
    finished: bool


@dataclass
class Reply:
    tokens: list[int] = field(default_factory=list)
    """With the stop token, when there is one."""
    step_map: list[int] = field(default_factory=list)
    """For each token, the step inside its block at which it was unmasked, from 0."""
    stopped: bool = False
    """Ended by a stop token or by :meth:`BlockDecoder.stop`, not by the length limit."""


class BlockDecoder:
    """Decodes ``len(seeds)`` candidates of one prompt; iterate :meth:`run` to the end, or stop iterating to cancel.

    ``seeds`` and ``temperatures`` (0 = argmax) are one a candidate. A candidate's tokens depend on its own seed and
    temperature only. Raises ``ValueError`` for a prompt or a length that the model's context does not hold.
    """

    def __init__(
        self,
        model: SdarModel,
        prompt: Sequence[int],
        options: DecodeOptions,
        seeds: Sequence[int],
        temperatures: Sequence[float],
        block_size: int | None = None,
        stop_ids: Sequence[int] | None = None,
    ) -> None:
        config = model.config
        size = block_size or config.block_size
        if not prompt:
            raise ValueError("the prompt is empty")
        if min(prompt) < 0 or max(prompt) >= config.vocab_size:
            raise ValueError(f"the prompt holds ids outside the vocabulary of {config.vocab_size}")
        if len(prompt) + options.max_new_tokens > config.max_position_embeddings:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens and {options.max_new_tokens} new ones do not fit the context of "
                f"{config.max_position_embeddings}"
            )
        if not seeds or len(seeds) != len(temperatures) or min(temperatures) < 0:
            raise ValueError(
                "candidates need one seed and one temperature >= 0 each, and there must be at least one"
            )
        self.model, self.options, self.size = model, options, size
        self.mask_id = config.mask_token_id
        self.prompt = list(prompt)
        self.steps = options.steps or size
        self.limit = len(prompt) + options.max_new_tokens
        self.stop_ids = np.array(
            sorted(config.eos_token_ids if stop_ids is None else stop_ids), dtype=np.int64
        )
        self.replies = [Reply() for _ in seeds]
        self.forward_count = 0
        """Passes of the network so far, the prefill not counted."""

        rows, start = len(seeds), len(prompt) // size * size
        tail = self.prompt[start:]
        self._stopping: set[int] = set()
        self._candidate = np.arange(rows)
        self._seed = np.array([s & (2**63 - 1) for s in seeds], dtype=np.int64)
        self._temperature = np.array(temperatures, dtype=np.float32)
        self._start = np.full(rows, start)
        self._step = np.zeros(rows, dtype=np.int64)
        self._fresh = np.zeros(rows, dtype=bool)  # the block before this one is not in the cache yet
        self._before = np.zeros((rows, size), dtype=np.int64)
        self._block = np.full((rows, size), self.mask_id, dtype=np.int64)
        self._block[:, : len(tail)] = tail
        self._masked = np.tile(np.arange(size) >= len(tail), (rows, 1))
        self._when = np.zeros((rows, size), dtype=np.int64)

    def stop(self, candidate: int) -> None:
        """Let a candidate end with what it has: it takes no part in the next pass."""
        self._stopping.add(candidate)

    def run(self) -> Iterator[BlockEvent]:
        prefix = SharedPrefix(self.model, int(self._start[0]))
        for _ in prefix.fill(self.model, self.prompt[: prefix.length], self.size):
            pass
        cache = OwnCache(self.model, len(self.replies), prefix)
        while len(self._candidate):
            with torch.inference_mode():
                self._pass(cache)
            yield from self._collect(cache)

    def _pass(self, cache: OwnCache) -> None:
        """One forward for all rows, and the unmasking that follows from it."""
        rows, size, device = len(self._candidate), self.size, self.model.device
        grid = np.concatenate((self._before, self._block), 1)
        at = self._start[:, None] - size + np.arange(2 * size)
        use = np.ones((rows, 2 * size), dtype=bool)
        use[:, :size] = self._fresh[:, None]
        if not self._fresh.any():
            grid, at, use = grid[:, size:], at[:, size:], use[:, size:]
        visible = (at // size + 1) * size - cache.prefix.length
        token_of_cell = np.where(use, use.cumsum().reshape(use.shape) - 1, 0)
        row_of_token = np.nonzero(use)[0]
        cache.reserve(int(visible.max()))

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device)

        layout = Layout(
            width=grid.shape[1],
            cell_of_token=put(np.nonzero(use.ravel())[0]),
            token_of_cell=put(token_of_cell.ravel()),
            row_of_token=put(row_of_token),
            slot_of_token=put(at[use] - cache.prefix.length),
            visible=put(visible),
            used=int(visible.max()),
        )
        hidden = self.model.model(put(grid[use])[None], put(at[use])[None], cache.attend(layout, rows))[0]
        logits = self.model.head(hidden[put(token_of_cell[:, -size:])])
        self.forward_count += 1
        self._unmask(logits, at[:, -size:])

    def _unmask(self, logits: Tensor, positions: np.ndarray) -> None:
        device, options = logits.device, self.options
        noise = counter_noise(self._seed, positions, self._step)
        drawn = draw(
            logits,
            self.mask_id,
            torch.from_numpy(self._temperature).to(device),
            options.top_k,
            options.top_p,
            torch.from_numpy(noise).to(device),
            entropy=options.strategy == "entropy_bounded",
        )
        quotas = torch.tensor([quota(self.size, self.steps, int(s)) for s in self._step], device=device)
        masked = torch.from_numpy(self._masked).to(device)
        chosen = choose(options, masked, drawn.confidence, drawn.entropy, quotas).cpu().numpy()
        if bool(drawn.confidence.isnan().any()):
            raise DecodeError(
                "the network returned not-a-number logits: are the weights damaged, or fp16 too narrow?"
            )
        self._block = np.where(chosen, drawn.tokens.cpu().numpy(), self._block)
        self._when = np.where(chosen, self._step[:, None], self._when)
        self._masked &= ~chosen
        self._step += 1
        self._fresh[:] = False

    def _collect(self, cache: OwnCache) -> Iterator[BlockEvent]:
        """Hand on the blocks that are complete, move their rows to the next block, and drop the rows that are done."""
        done: list[int] = []
        for row, candidate in enumerate(self._candidate.tolist()):
            start, first = int(self._start[row]), max(len(self.prompt) - int(self._start[row]), 0)
            is_stop = np.isin(self._block[row], self.stop_ids) & ~self._masked[row]
            is_stop[:first] = False
            found_stop = bool(is_stop.any())
            end = min(self.limit - start, int(is_stop.argmax()) + 1 if found_stop else self.limit)
            finished = end <= self.size
            if self._masked[row, :end].any():  # a slice past the block's end is the whole block
                continue
            tokens, when = self._block[row, first:end].tolist(), self._when[row, first:end].tolist()
            reply = self.replies[candidate]
            reply.tokens += tokens
            reply.step_map += when
            reply.stopped = finished and found_stop and bool(is_stop[end - 1])
            if not finished:
                self._next_block(row)
            if finished:
                done.append(row)
            yield BlockEvent(candidate, tokens, when, finished)
        for row, candidate in enumerate(self._candidate.tolist()):
            if candidate in self._stopping and row not in done:
                self.replies[candidate].stopped = True
                done.append(row)
        for row in sorted(done, reverse=True):
            self._drop(row, cache)

    def _next_block(self, row: int) -> None:
        self._before[row] = self._block[row]
        self._block[row] = self.mask_id
        self._masked[row] = True
        self._fresh[row] = True
        self._step[row] = 0
        self._start[row] += self.size

    def _drop(self, row: int, cache: OwnCache) -> None:
        last = len(self._candidate) - 1
        if row != last:
            cache.move(last, row)
        for name in _ROW_STATE:
            array = getattr(self, name)
            array[row] = array[last]
            setattr(self, name, array[:last])


_ROW_STATE = (
    "_candidate",
    "_seed",
    "_temperature",
    "_start",
    "_step",
    "_fresh",
    "_before",
    "_block",
    "_masked",
    "_when",
)


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
) -> Generation:
    """Decode ``n`` replies to one prompt (ids ``[P]`` or ``[1, P]``) as one batch.

    Candidate i draws with seed + i: the same tokens as a single run with that seed. ``stop_ids`` None: those of the
    config. See :class:`DecodeOptions` for the rest.
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
    seeds = [seed + i for i in range(n)]
    decoder = BlockDecoder(model, input_ids, options, seeds, [temperature] * n, block_size, stop_ids)
    for _ in decoder.run():
        pass
    replies = decoder.replies
    return Generation([r.tokens for r in replies], [r.step_map for r in replies], decoder.forward_count)
