"""What a decoder is asked for and what it tells: requests, replies and the events of their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dice_engine.decode.rows import MAX_STOP_IDS
from dice_engine.decode.strategies import DecodeOptions
from dice_engine.model.config import SdarConfig


class DecodeError(Exception):
    """The network gave something that cannot be decoded (not-a-number logits)."""


@dataclass(frozen=True)
class DecodeRequest:
    """Candidates of one prompt, one for each of ``seeds``; ``temperatures`` (0 = argmax) are as many.

    ``stop_ids`` None: those of the model's config.
    """

    prompt: Sequence[int]
    options: DecodeOptions
    seeds: Sequence[int]
    temperatures: Sequence[float]
    stop_ids: Sequence[int] | None = None
    forced: Sequence[int] = ()
    """Tokens that every reply begins with: part of it, and of its length, but not decoded."""
    keep: bool = False
    """Let later requests that begin like a reply find its keys and values."""

    def check(self, config: SdarConfig) -> None:
        """Raises ``ValueError`` with one clear line for a request that the model cannot decode."""
        if not self.prompt:
            raise ValueError("the prompt is empty")
        ids = [*self.prompt, *self.forced]
        if min(ids) < 0 or max(ids) >= config.vocab_size:
            raise ValueError(f"the prompt holds ids outside the vocabulary of {config.vocab_size}")
        new = self.options.max_new_tokens
        if len(self.forced) >= new:
            raise ValueError(f"{len(self.forced)} forced tokens leave nothing to decode of {new} new ones")
        if len(self.prompt) + new > config.max_position_embeddings:
            raise ValueError(
                f"a prompt of {len(self.prompt)} tokens and {new} new ones do not fit the context of "
                f"{config.max_position_embeddings}"
            )
        if not self.seeds or len(self.seeds) != len(self.temperatures) or min(self.temperatures) < 0:
            raise ValueError(
                "candidates need one seed and one temperature >= 0 each, and there must be at least one"
            )
        if self.stop_ids is not None and len(self.stop_ids) > MAX_STOP_IDS:
            raise ValueError(f"there can be {MAX_STOP_IDS} stop ids, not {len(self.stop_ids)}")


@dataclass
class Reply:
    tokens: list[int] = field(default_factory=list)
    """With the stop token, when there is one."""
    step_map: list[int] = field(default_factory=list)
    """For each token, the step inside its block at which it was unmasked, from 0."""
    stopped: bool = False
    """Ended by a stop token or by the caller, not by the length limit."""


class Job:
    """A request on its way through a decoder."""

    def __init__(self, request: DecodeRequest, block_size: int, priority: int = 0) -> None:
        self.request, self.priority = request, priority
        self.prompt = [*request.prompt, *request.forced]
        """What is given: all that the model sees before it decodes."""
        self.replies = [Reply([*request.forced], [0] * len(request.forced)) for _ in request.seeds]
        self.forward_count = 0
        """Passes of the network that this job took part in, the prefill not counted."""
        self.unfinished = len(self.replies)
        self.start = len(self.prompt) // block_size * block_size
        """Positions of the prompt's whole blocks, which are prefilled."""
        self.limit = len(request.prompt) + request.options.max_new_tokens
        self.prefilled = 0
        self.joined = 0
        """Candidates that have begun."""
        self.pages: list[int] = []
        """The prompt's, held until every candidate has joined."""


@dataclass(frozen=True)
class BlockEvent:
    """One candidate has finished a block. ``tokens`` are its new tokens, cut at the end of the reply."""

    job: Job
    candidate: int
    tokens: list[int]
    steps: list[int]
    finished: bool


@dataclass(frozen=True)
class JobFailed:
    """Nothing more comes from this job."""

    job: Job
    error: Exception
