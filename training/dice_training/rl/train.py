"""The loop of BiC-RL: draw tasks, decode replies, have them verified, update the weights (``dice train rl``).

Under ``torchrun`` every process decodes, and learns from its part of the rows; the first one draws tasks, has the
judges and keeps the journal, and the others do as they are told.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.model.weights import load_model, save_folder

from dice_training.judging import LOCAL, JudgePool, Options, Pending, cores, open_pool
from dice_training.ranks import Ranks, first_rank, joined
from dice_training.recipe import RecipeError
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.decoding import Decoding, Plan
from dice_training.rl.journal import Journal, Scored
from dice_training.rl.metrics import in_words, metrics
from dice_training.rl.policy import Policy
from dice_training.rl.recipe import RlRecipe
from dice_training.rl.rollout import Rollout, Sampler
from dice_training.rl.scoring import Scoring, trajectories
from dice_training.rl.spread import Spread
from dice_training.rl.state import load_state, save_state
from dice_training.rl.tasks import Task, load_tasks

Report = Callable[[str], None]
BUDGET, TIMEOUT, BUILD_TIMEOUT, DEADLINE = 1.0, 10.0, 60.0, 240.0
"""Seconds for the optional trials of a reply, a run, a build, and a worker that is itself stuck."""


def train(
    recipe: RlRecipe,
    report: Report,
    *,
    resume: bool = False,
    stop_after: float | None = None,
    pool: str = LOCAL,
) -> Path:
    """Run ``recipe`` and return the checkpoint folder; ``report`` gets one line of progress at a time. Replies are
    judged in ``pool`` (see ``open_pool``).

    After ``stop_after`` minutes, at Ctrl-C and at SIGTERM the run ends with the step it is at, its state and checkpoint
    saved (a second Ctrl-C does not wait); a signal then raises :class:`KeyboardInterrupt`. ``resume`` goes on then.
    """
    torch.manual_seed(recipe.seed)
    torch.set_float32_matmul_precision("high")
    cuda = torch.cuda.is_available()
    if recipe.speed and not cuda:
        raise RecipeError("'speed' needs a GPU: nothing is timed on a CPU")
    if not first_rank():
        report = _silent
    folder = Path(recipe.init)
    judging = Options("cuda" if cuda else "cpu", budget=BUDGET, timeout=TIMEOUT, build_timeout=BUILD_TIMEOUT)
    with joined() as ranks:
        device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        model = load_model(folder, device, torch.float32)
        tokenizer = DiceTokenizer.load(folder, model.config)
        phases = _tasks(recipe, tokenizer, model, report)
        curricula = [Curriculum(list(tasks), recipe.seed + n) for n, tasks in enumerate(phases)]
        policy = Policy(model, recipe, ranks=ranks)
        done = load_state(Path(recipe.output), recipe, model, policy.optimizer, curricula) if resume else 0
        until = time.monotonic() + 60 * stop_after if stop_after is not None else None
        workers = recipe.workers or cores()
        judges = open_pool(pool, judging, workers, deadline=DEADLINE) if ranks.first else None
        with _Interrupt() as interrupt, judges or contextlib.nullcontext():
            run = Run(recipe, policy, Sampler(model, tokenizer, recipe.temperature, recipe.threshold), ranks)
            run.go(phases, curricula, done, judges, lambda: interrupt.asked or _over(until), report)
        (interrupted,) = ranks.agreed(float(interrupt.asked))
    if interrupted:
        raise KeyboardInterrupt
    return Path(recipe.output)


class Run:
    """What all steps of a run share, in one of its processes."""

    def __init__(self, recipe: RlRecipe, policy: Policy, sampler: Sampler, ranks: Ranks) -> None:
        self.recipe, self.policy, self.sampler, self.ranks = recipe, policy, sampler, ranks
        self.spread = Spread(ranks)
        self.scoring: Scoring | None = None

    def go(
        self,
        phases: Sequence[dict[str, Task]],
        curricula: Sequence[Curriculum],
        done: int,
        judges: JudgePool | None,
        stopping: Callable[[], bool],
        report: Report,
    ) -> None:
        """All steps from ``done`` on, or until ``stopping()``. ``judges`` only in the first process."""
        recipe, output = self.recipe, Path(self.recipe.output)
        journal = Journal(output, done) if self.ranks.first else None
        self.scoring = Scoring(judges, recipe.speed) if judges is not None else None
        decoding: Decoding | None = None
        for step in range(done, recipe.steps):
            number, phase = recipe.phase_of(step)
            finished = step + 1 == recipe.steps
            phase_ends = finished or recipe.phase_of(step + 1)[0] != number
            if decoding is None:
                decoding = self._begin(step, phases, curricula, lag=0)
            plan = decoding.plan
            groups, seconds = self._scored(decoding, curricula[number])
            started = time.monotonic()
            teaching = self.spread.told([trajectories(one) for one in groups if one.advantages is not None])
            lesson = self.policy.prepare(teaching, self.sampler.model if plan.lag else None)
            (stop,) = self.ranks.agreed(float(stopping()))
            ahead = recipe.overlap and not finished and not stop
            decoding = self._begin(step + 1, phases, curricula, lag=1) if ahead else None
            try:
                update = self.policy.update(lesson)
            except BaseException:
                if decoding is not None:
                    decoding.cancel()
                raise
            seconds["update_seconds"] = time.monotonic() - started
            if journal is not None:
                entry = metrics(plan, groups, update) | {name: round(s, 2) for name, s in seconds.items()}
                journal.rollouts(step, phase.kind, groups)
                journal.metrics(entry)
                report(in_words(entry, recipe.steps))
                if phase_ends or stop or (step + 1) % recipe.save_every == 0:
                    save_state(output, recipe, step + 1, self.policy.model, self.policy.optimizer, curricula)
                    journal.draw()
                if phase_ends and not finished:
                    self._save(output / f"phase{number + 1}-{phase.kind}")
                if finished or stop:
                    self._save(output)
                    report(f"saved {output}" + ("" if finished else "; go on with --resume"))
            if stop:
                break

    def _begin(
        self, step: int, phases: Sequence[dict[str, Task]], curricula: Sequence[Curriculum], lag: int
    ) -> Decoding:
        """Hand the weights of now to the engines, and begin with the replies to a step's tasks."""
        recipe = self.recipe
        number, phase = recipe.phase_of(step)
        names = self.spread.told(curricula[number].draw(step, recipe.tasks))
        tasks = [phases[number][name] for name in names]
        self.spread.same_weights(self.policy.model)
        self.sampler.sync(self.policy.model)
        first_seed = (recipe.seed * 1_000_003 + step) * recipe.tasks * recipe.replies
        groups = self.spread.decode(self.sampler, step, tasks, recipe.replies, first_seed)
        plan = Plan(step, phase, tasks, lag)
        return Decoding(plan, groups, self._judge, self.policy.model.device, background=lag > 0)

    def _judge(self, task: Task, rollouts: list[Rollout]) -> Pending:
        assert self.scoring is not None  # only the first process gets groups
        return self.scoring.submit(task, rollouts)

    def _scored(self, decoding: Decoding, curriculum: Curriculum) -> tuple[list[Scored], dict[str, float]]:
        """The groups of a step, in the first process, and the seconds that were waited for them."""
        started = time.monotonic()
        decoded = decoding.result()
        rolled = time.monotonic()
        groups = self.scoring.score(decoded) if self.scoring is not None else []
        for group in groups:
            curriculum.note(group.task.id, decoding.plan.step, group.correct)
        return groups, {"rollout_seconds": rolled - started, "judge_seconds": time.monotonic() - rolled}

    def _save(self, place: Path) -> None:
        save_folder(self.policy.model, place, dtype=torch.bfloat16, quantize=self.recipe.quantize)
        shutil.copyfile(Path(self.recipe.init) / "tokenizer.json", place / "tokenizer.json")
        (place / "recipe.json").write_text(json.dumps(asdict(self.recipe), indent=2), encoding="utf-8")


def _tasks(
    recipe: RlRecipe, tokenizer: DiceTokenizer, model: SdarModel, report: Report
) -> list[dict[str, Task]]:
    """The tasks of each phase, by id."""
    phases = []
    for phase in recipe.phases:
        tasks, left_out = load_tasks(
            phase,
            tokenizer,
            format=model.config.format,
            context=model.config.max_position_embeddings,
            max_new_tokens=recipe.max_new_tokens,
        )
        report(f"{phase.kind}: {len(tasks)} tasks, {left_out} too long for the context and left out")
        phases.append({task.id: task for task in tasks})
    return phases


def _over(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def _silent(line: str) -> None:
    pass


class _Interrupt:
    """``asked`` after the first Ctrl-C or SIGTERM; the second one ends the process as usual."""

    def __enter__(self) -> _Interrupt:
        self.asked = False
        self._before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def _ask(self, *_: object) -> None:
        self.asked = True
        self.__exit__()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
