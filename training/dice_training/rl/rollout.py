"""Replies to a step's tasks, decoded by the engine with the weights of the moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from dice_engine.chat import core_end
from dice_engine.decode.generation import decoder_of
from dice_engine.decode.jobs import DecodeRequest, Job, JobFailed
from dice_engine.decode.strategies import DecodeOptions
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.prompts import parse_core

from dice_training.rl.tasks import Task


@dataclass(frozen=True)
class Rollout:
    tokens: list[int]
    step_map: list[int]
    core: str
    complete: bool
    """The model ended it; False: cut at the length limit."""
    seed: int


class Sampler:
    """A copy of the policy in the engine's dtype; ``sync`` brings the weights over in memory."""

    def __init__(
        self, model: SdarModel, tokenizer: DiceTokenizer, temperature: float, threshold: float
    ) -> None:
        dtype = torch.bfloat16 if model.device.type == "cuda" else torch.float32
        self.model = SdarModel(model.config).to(model.device, dtype).eval().requires_grad_(False)
        self.sync(model)
        self._decoder = decoder_of(self.model)
        self.tokenizer, self.temperature, self.threshold = tokenizer, temperature, threshold

    @torch.no_grad()
    def sync(self, model: SdarModel) -> None:
        for ours, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            ours.copy_(theirs)

    def sample(
        self,
        tasks: Sequence[Task],
        replies: int,
        first_seed: int,
        numbers: Iterator[int] | None = None,
        at_once: int | None = None,
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """``replies`` to each of ``tasks``, each group (with its task's number) as soon as it is whole.

        ``numbers`` says which of the tasks (all), drawn while fewer than ``at_once`` (all) are being decoded. Reply r
        to task t draws with ``first_seed + t * replies + r``. Stop iterating to cancel.
        """
        waiting = iter(range(len(tasks))) if numbers is None else numbers
        jobs: dict[int, tuple[int, Job]] = {}

        def fill() -> None:
            for number in islice(waiting, (at_once or len(tasks)) - len(jobs)):
                job = self._submit(tasks[number], replies, first_seed + number * replies)
                jobs[id(job)] = (number, job)

        try:
            fill()
            while jobs:
                for event in self._decoder.step():
                    if id(event.job) not in jobs:
                        continue
                    if isinstance(event, JobFailed):
                        raise event.error
                    number, job = jobs[id(event.job)]
                    if not event.finished and self._core_is_there(tasks[number], job, event.candidate):
                        self._decoder.stop(job, event.candidate)
                    if not job.unfinished:
                        del jobs[id(job)]
                        fill()
                        yield number, self._rollouts(tasks[number], job)
        finally:
            for _, job in jobs.values():
                self._decoder.cancel(job)

    def _submit(self, task: Task, replies: int, first_seed: int) -> Job:
        return self._decoder.submit(
            DecodeRequest(
                task.prompt,
                DecodeOptions(max_new_tokens=task.room, threshold=self.threshold),
                [first_seed + r for r in range(replies)],
                [self.temperature] * replies,
                self.tokenizer.stop_ids,
            )
        )

    def _core_is_there(self, task: Task, job: Job, candidate: int) -> bool:
        """A chat reply goes on past the core; the reply is done when the core is."""
        if self.model.config.format == "fim":
            return False
        text = self.tokenizer.decode(job.replies[candidate].tokens)
        return core_end(task.row["kind"], text, task.row["suffix"]) is not None

    def _rollouts(self, task: Task, job: Job) -> list[Rollout]:
        kind, suffix = task.row["kind"], task.row["suffix"]
        found = []
        for reply, seed in zip(job.replies, job.request.seeds, strict=True):
            text = self.tokenizer.decode(reply.tokens)
            core = parse_core(kind, text, self.model.config.format, suffix)
            found.append(Rollout(reply.tokens, reply.step_map, core, reply.stopped, seed))
        return found
