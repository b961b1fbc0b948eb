"""From replies to rewards: the judges' verdicts, those that are known already, groups with their advantages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from dice_engine.verify.verdict import Verdict

from dice_training.judging import Case, Judgement, JudgePool, Pending
from dice_training.rl.decoding import Decoded
from dice_training.rl.journal import Scored
from dice_training.rl.reward import advantages, ours, reward
from dice_training.rl.rollout import Rollout
from dice_training.rl.tasks import Task
from dice_training.rl.trajectory import Group, Reply

REMEMBERED = 100_000
"""Verdicts kept in memory: an equal reply to the same task is not judged twice."""
CUT = Verdict("build_error", rule="cut", reason="the reply was cut at the length limit")


class Scoring:
    """``speed``: weight of the speed term."""

    def __init__(self, pool: JudgePool, speed: float) -> None:
        self.pool, self.speed = pool, speed
        self._known: OrderedDict[tuple[str, str], Verdict] = OrderedDict()

    def submit(self, task: Task, rollouts: Sequence[Rollout]) -> Pending:
        """Have judged what must be: complete replies whose verdict is not known."""
        known = self._known
        cores = [r.core for r in rollouts if r.complete and (task.id, r.core) not in known]
        return self.pool.submit(Case(task.row, cores))

    def score(self, decoded: Decoded) -> list[Scored]:
        """The groups with their rewards, when all judges are done."""
        cases = [pending.case for *_, pending in decoded]
        judged = [pending.result() for *_, pending in decoded]
        if self.speed:
            judged = self.pool.measure(cases, judged)
        return [
            self._score(task, rollouts, case, found)
            for (task, rollouts, _), case, found in zip(decoded, cases, judged, strict=True)
        ]

    def _score(
        self, task: Task, rollouts: Sequence[Rollout], case: Case, judged: Sequence[Judgement]
    ) -> Scored:
        fresh = {core: found.verdict for core, found in zip(case.cores, judged, strict=True)}
        verdicts = [
            (fresh.get(r.core) or self._known[task.id, r.core]) if r.complete else CUT for r in rollouts
        ]
        for core, verdict in fresh.items():
            if not ours(verdict):
                self._known[task.id, core] = verdict
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        rewards = [reward(verdict, self.speed) for verdict in verdicts]
        return Scored(task, rollouts, verdicts, rewards, advantages(rewards))


def trajectories(group: Scored) -> Group:
    """The replies that count, with the ids and steps that the decoder gave."""
    assert group.advantages is not None
    replies = [
        Reply(rollout.tokens, rollout.step_map, advantage)
        for rollout, advantage in zip(group.rollouts, group.advantages, strict=True)
        if advantage is not None
    ]
    return Group(group.task.prompt, replies)
