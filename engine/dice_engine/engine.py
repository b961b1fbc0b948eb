"""The engine: a checkpoint, its tokenizer and the decoder; requests in, candidate cores out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

import dice_engine
from dice_engine.decode.blocks import BlockDecoder, BlockEvent
from dice_engine.decode.strategies import DecodeOptions
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import CoreRequest, PromptError, build_prompt, parse_core

MAX_CPU_THREADS = 4


@dataclass(frozen=True)
class Candidate:
    index: int
    core: str
    tokens: list[int]
    step_map: list[int]
    """For each token the step inside its block at which it was unmasked."""
    complete: bool
    """The model ended it; False: cut at the length limit."""
    seconds: float
    """From the start of the request until this candidate was done."""


@dataclass(frozen=True)
class BlockProgress:
    """``candidate`` has one more block and ``tokens`` tokens now; ``finished`` of ``n`` candidates are done."""

    candidate: int
    tokens: int
    finished: int
    n: int


class Engine:
    """One loaded checkpoint. Not for use from several threads at once."""

    def __init__(self, model: SdarModel, tokenizer: DiceTokenizer, folder: Path) -> None:
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.format = model.config.format

    @staticmethod
    def load(path: str | Path | None = None, device: str = "auto", dtype: Any = None) -> Engine:
        """Load a checkpoint folder with its tokenizer; arguments and errors as for :func:`dice_engine.load`."""
        folder = Path(path or dice_engine.NANO)
        model = dice_engine.load(folder, device, dtype)
        if model.device.type == "cpu":
            bound_threads()
        return Engine(model, DiceTokenizer.load(folder, model.config), folder)

    @property
    def device_name(self) -> str:
        device = self.model.device
        return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

    def candidates(
        self,
        request: CoreRequest,
        n: int = 8,
        seed: int = 0,
        on_block: Callable[[BlockProgress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        **options: Any,
    ) -> list[Candidate]:
        """All candidates in the order of their index (the greedy one first); ``cancelled`` is asked after each pass,
        and what was finished by then is returned. ``options`` as for :meth:`stream`."""
        found = []
        for event in self.stream(request, n, seed, **options):
            if isinstance(event, Candidate):
                found.append(event)
            elif on_block is not None:
                on_block(event)
            if cancelled is not None and cancelled():
                break
        return sorted(found, key=lambda c: c.index)

    def stream(
        self,
        request: CoreRequest,
        n: int = 8,
        seed: int = 0,
        *,
        temperature: float = 0.8,
        max_new_tokens: int = 1024,
        strategy: Literal[
            "sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded"
        ] = "low_confidence_dynamic",
        steps: int | None = None,
        threshold: float = 0.9,
    ) -> Iterator[BlockProgress | Candidate]:
        """Decode ``n`` candidates together: a :class:`BlockProgress` for each block, a :class:`Candidate` when one is
        done. Candidate 0 is greedy, i > 0 is drawn at ``temperature`` with ``seed + i``. Stop iterating to cancel.

        Raises :class:`dice_engine.prompts.PromptError` for a request that does not fit the context.
        """
        start = time.monotonic()
        if n < 1:
            raise ValueError(f"n must be at least 1, it is {n}")
        context = self.model.config.max_position_embeddings
        prompt = build_prompt(
            request, self.tokenizer, context - min(max_new_tokens, context // 2), format=self.format
        )
        options = DecodeOptions(
            max_new_tokens=min(max_new_tokens, context - len(prompt)),
            strategy=strategy,
            steps=steps,
            threshold=threshold,
        )
        decoder = BlockDecoder(
            self.model,
            prompt,
            options,
            seeds=[seed + i for i in range(n)],
            temperatures=[0.0] + [temperature] * (n - 1),
            stop_ids=self.tokenizer.stop_ids,
        )
        finished = 0
        for event in decoder.run():
            reply = decoder.replies[event.candidate]
            ended = event.finished or self._core_is_there(request, reply.tokens)
            if ended and not event.finished:
                decoder.stop(event.candidate)
            finished += ended
            yield BlockProgress(event.candidate, len(reply.tokens), finished, n)
            if ended:
                yield self._candidate(request, decoder, event, time.monotonic() - start)

    def _core_is_there(self, request: CoreRequest, tokens: list[int]) -> bool:
        """A chat reply goes on past the core; the candidate is done when the core is."""
        if self.format == "fim":
            return False
        from dice_engine.chat import core_end

        return core_end(request.kind, self.tokenizer.decode(tokens), request.suffix) is not None

    def _candidate(
        self, request: CoreRequest, decoder: BlockDecoder, event: BlockEvent, seconds: float
    ) -> Candidate:
        reply = decoder.replies[event.candidate]
        core = parse_core(request.kind, self.tokenizer.decode(reply.tokens), self.format, request.suffix)
        complete = reply.stopped or not event.finished
        return Candidate(event.candidate, core, reply.tokens, reply.step_map, complete, seconds)


def bound_threads() -> None:
    """Leave the machine usable: decoding on a CPU takes at most four threads, and never more than there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, min(MAX_CPU_THREADS, cores, torch.get_num_threads())))


__all__ = ["BlockProgress", "Candidate", "Engine", "PromptError"]
