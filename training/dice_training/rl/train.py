"""The loop of BiC-RL: draw tasks, decode replies, have them verified, update the weights (``dice train rl``)."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from dice_engine.model.network import SdarModel
from dice_engine.model.tokenizer import DiceTokenizer
from dice_engine.model.weights import load_model, save_folder
from dice_engine.verify.verdict import Verdict

from dice_training.judging import LOCAL, Case, Judgement, JudgePool, Options, Pending, cores, open_pool
from dice_training.recipe import RecipeError
from dice_training.rl.curriculum import Curriculum
from dice_training.rl.journal import Journal, Scored, mix
from dice_training.rl.policy import Policy, Update
from dice_training.rl.recipe import Phase, RlRecipe
from dice_training.rl.reward import advantages, ours, reward
from dice_training.rl.rollout import Rollout, Sampler
from dice_training.rl.state import load_state, save_state
from dice_training.rl.tasks import Task, load_tasks
from dice_training.rl.trajectory import Group, Reply

Report = Callable[[str], None]
BUDGET, TIMEOUT, BUILD_TIMEOUT, DEADLINE = 1.0, 10.0, 60.0, 240.0
"""Seconds for the optional trials of a reply, a run, a build, and a worker that is itself stuck."""
REMEMBERED = 100_000
"""Verdicts kept in memory: an equal reply to the same task is not judged twice."""
CUT = Verdict("build_error", rule="cut", reason="the reply was cut at the length limit")


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
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if recipe.speed and device.type == "cpu":
        raise RecipeError("'speed' needs a GPU: nothing is timed on a CPU")
    folder, output = Path(recipe.init), Path(recipe.output)
    model = load_model(folder, device, torch.float32)
    tokenizer = DiceTokenizer.load(folder, model.config)
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
    curricula = [Curriculum(list(tasks), recipe.seed + n) for n, tasks in enumerate(phases)]
    policy = Policy(model, recipe)
    done = load_state(output, recipe, model, policy.optimizer, curricula) if resume else 0
    workers = recipe.workers or cores()
    judging = Options(
        "cuda" if device.type == "cuda" else "cpu",
        budget=BUDGET,
        timeout=TIMEOUT,
        build_timeout=BUILD_TIMEOUT,
    )
    until = time.monotonic() + 60 * stop_after if stop_after is not None else None
    with (
        _Interrupt() as interrupt,
        open_pool(pool, judging, workers, deadline=DEADLINE) as opened,
    ):
        run = Run(recipe, policy, Sampler(model, tokenizer, recipe.temperature, recipe.threshold), opened)
        journal = Journal(output, done)
        for step in range(done, recipe.steps):
            number, phase = recipe.phase_of(step)
            names = curricula[number].draw(step, recipe.tasks)
            entry = run.step(
                step, phase, [phases[number][name] for name in names], curricula[number], journal
            )
            report(_line(entry, recipe.steps))
            finished = step + 1 == recipe.steps
            phase_ends = finished or recipe.phase_of(step + 1)[0] != number
            stop = interrupt.asked or (until is not None and time.monotonic() > until)
            if phase_ends or stop or (step + 1) % recipe.save_every == 0:
                save_state(output, recipe, step + 1, model, policy.optimizer, curricula)
                journal.draw()
            if phase_ends and not finished:
                _save(model, folder, output / f"phase{number + 1}-{phase.kind}", recipe)
            if finished or stop:
                _save(model, folder, output, recipe)
                report(f"saved {output}" + ("" if finished else "; go on with --resume"))
                break
    if interrupt.asked:
        raise KeyboardInterrupt
    return output


class Run:
    """What all steps of a run share."""

    def __init__(self, recipe: RlRecipe, policy: Policy, sampler: Sampler, pool: JudgePool) -> None:
        self.recipe, self.policy, self.sampler, self.pool = recipe, policy, sampler, pool
        self._known: OrderedDict[tuple[str, str], Verdict] = OrderedDict()

    def step(
        self, step: int, phase: Phase, tasks: Sequence[Task], curriculum: Curriculum, journal: Journal
    ) -> dict[str, Any]:
        """One step; returns its metrics."""
        recipe = self.recipe
        started = time.monotonic()
        self.sampler.sync(self.policy.model)
        first_seed = (recipe.seed * 1_000_003 + step) * recipe.tasks * recipe.replies
        # Groups are judged while others are still being decoded.
        decoded: list[tuple[Task, list[Rollout], Pending]] = []
        for number, rollouts in self.sampler.sample(tasks, recipe.replies, first_seed):
            decoded.append((tasks[number], rollouts, self.pool.submit(self._case(tasks[number], rollouts))))
        rolled = time.monotonic()
        judged = [(task, rollouts, pending.case, pending.result()) for task, rollouts, pending in decoded]
        if recipe.speed:
            timed = self.pool.measure([case for *_, case, _ in judged], [found for *_, found in judged])
            judged = [(t, r, case, found) for (t, r, case, _), found in zip(judged, timed, strict=True)]
        groups = [self._score(task, rollouts, case, found) for task, rollouts, case, found in judged]
        for group in groups:
            curriculum.note(group.task.id, step, group.correct)
        journal.rollouts(step, phase.kind, groups)
        scored = time.monotonic()
        teaching = [group for group in groups if group.advantages is not None]
        update = self.policy.update([_trajectories(group) for group in teaching])
        ended = time.monotonic()
        seconds = {
            "rollout_seconds": rolled - started,
            "judge_seconds": scored - rolled,
            "update_seconds": ended - scored,
        }
        entry = _entry(step, phase, groups, update) | {name: round(s, 2) for name, s in seconds.items()}
        journal.metrics(entry)
        return entry

    def _case(self, task: Task, rollouts: Sequence[Rollout]) -> Case:
        """What must be judged: complete replies whose verdict is not known."""
        cores = [r.core for r in rollouts if r.complete and (task.id, r.core) not in self._known]
        return Case(task.row, cores)

    def _score(
        self, task: Task, rollouts: Sequence[Rollout], case: Case, judged: Sequence[Judgement]
    ) -> Scored:
        fresh = {core: found.verdict for core, found in zip(case.cores, judged, strict=True)}
        for core, verdict in fresh.items():
            if not ours(verdict):
                self._known[task.id, core] = verdict
        verdicts = [
            (fresh.get(r.core) or self._known[task.id, r.core]) if r.complete else CUT for r in rollouts
        ]
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        rewards = [reward(verdict, self.recipe.speed) for verdict in verdicts]
        return Scored(task, rollouts, verdicts, rewards, advantages(rewards))


def _trajectories(group: Scored) -> Group:
    """The replies that count, with the ids and steps that the decoder gave."""
    assert group.advantages is not None
    replies = [
        Reply(rollout.tokens, rollout.step_map, advantage)
        for rollout, advantage in zip(group.rollouts, group.advantages, strict=True)
        if advantage is not None
    ]
    return Group(group.task.prompt, replies)


def _entry(step: int, phase: Phase, groups: Sequence[Scored], update: Update) -> dict[str, Any]:
    rewards = [value for group in groups for value in group.rewards if value is not None]
    correct = [value for group in groups for value in group.correct]
    lengths = [len(rollout.tokens) for group in groups for rollout in group.rollouts]
    return {
        "step": step,
        "phase": phase.kind,
        "reward": statistics.fmean(rewards) if rewards else 0.0,
        "pass_rate": statistics.fmean(correct) if correct else 0.0,
        "groups": sum(group.advantages is not None for group in groups),
        "of": len(groups),
        "excluded": len(lengths) - len(rewards),
        "tokens": statistics.fmean(lengths) if lengths else 0.0,
        "verdicts": mix(groups),
        "loss": update.loss,
        "kl": update.kl,
        "entropy": update.entropy,
        "clipped": update.clipped,
        "norm": update.norm,
        "trained_tokens": update.tokens,
        "left_out": update.left_out,
    }


def _line(entry: dict[str, Any], steps: int) -> str:
    seconds = sum(entry[f"{part}_seconds"] for part in ("rollout", "judge", "update"))
    left = (steps - entry["step"] - 1) * seconds / 60
    return (
        f"step {entry['step'] + 1}/{steps} {entry['phase']}  reward {entry['reward']:.3f}"
        f"  correct {entry['pass_rate']:.1%}  groups {entry['groups']}/{entry['of']}  excluded {entry['excluded']}"
        f"  loss {entry['loss']:.4f}  kl {entry['kl']:.4f}  entropy {entry['entropy']:.3f}"
        f"  {entry['rollout_seconds']:.1f} + {entry['judge_seconds']:.1f} + {entry['update_seconds']:.1f} s"
        f"  {left:.0f} min left"
    )


def _save(model: SdarModel, init: Path, place: Path, recipe: RlRecipe) -> None:
    save_folder(model, place, dtype=torch.bfloat16, quantize=recipe.quantize)
    shutil.copyfile(init / "tokenizer.json", place / "tokenizer.json")
    (place / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2), encoding="utf-8")


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
