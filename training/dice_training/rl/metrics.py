"""What is told about a step: an entry of the journal, and a line for whoever watches."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from dice_training.rl.decoding import Plan
from dice_training.rl.journal import Scored, mix
from dice_training.rl.policy import Update


def metrics(plan: Plan, groups: Sequence[Scored], update: Update) -> dict[str, Any]:
    """One step's entry in the journal, but for its times."""
    rewards = [value for group in groups for value in group.rewards if value is not None]
    correct = [value for group in groups for value in group.correct]
    lengths = [len(rollout.tokens) for group in groups for rollout in group.rollouts]
    return {
        "step": plan.step,
        "phase": plan.phase.kind,
        "lag": plan.lag,
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


def in_words(entry: dict[str, Any], steps: int) -> str:
    """A line about a step; ``steps`` of the whole run."""
    seconds = sum(entry[f"{part}_seconds"] for part in ("rollout", "judge", "update"))
    left = (steps - entry["step"] - 1) * seconds / 60
    return (
        f"step {entry['step'] + 1}/{steps} {entry['phase']}  reward {entry['reward']:.3f}"
        f"  correct {entry['pass_rate']:.1%}  groups {entry['groups']}/{entry['of']}  excluded {entry['excluded']}"
        f"  loss {entry['loss']:.4f}  kl {entry['kl']:.4f}  entropy {entry['entropy']:.3f}"
        f"  {entry['rollout_seconds']:.1f} + {entry['judge_seconds']:.1f} + {entry['update_seconds']:.1f} s"
        f"{'  off-policy by 1' if entry['lag'] else ''}  {left:.0f} min left"
    )
