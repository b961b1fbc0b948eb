"""What a run leaves behind, so that it can be audited: every rollout with its verdict, the metrics, their curves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_engine.verify.verdict import CORRECT, Verdict

from dice_training.report import figure, table, write_page
from dice_training.rl.rollout import Rollout
from dice_training.rl.tasks import Task

_LOG_CHARS = 2000
_CURVES = (
    ("reward", "mean reward"),
    ("pass_rate", "share correct"),
    ("loss", "loss"),
    ("kl", "KL to the reference"),
    ("entropy", "entropy (nats)"),
    ("tokens", "reply length (tokens)"),
)


@dataclass(frozen=True)
class Scored:
    """A group with what became of it; ``advantages`` None: all were rewarded alike."""

    task: Task
    rollouts: Sequence[Rollout]
    verdicts: Sequence[Verdict]
    rewards: Sequence[float | None]
    advantages: Sequence[float | None] | None

    @property
    def correct(self) -> list[bool]:
        """Of the replies that count."""
        return [
            verdict.verdict in CORRECT
            for verdict, reward in zip(self.verdicts, self.rewards, strict=True)
            if reward is not None
        ]


class Journal:
    """``rollouts/STEP.jsonl``, ``metrics.jsonl``, ``report.html`` and ``curves.png`` in the output folder."""

    def __init__(self, folder: Path, steps_done: int) -> None:
        self.folder = folder
        (folder / "rollouts").mkdir(parents=True, exist_ok=True)
        for old in (folder / "rollouts").glob(
            "*.jsonl"
        ):  # of a run that is begun anew, or of a step that was lost
            if int(old.stem) >= steps_done:
                old.unlink()
        self._metrics = folder / "metrics.jsonl"
        self.entries: list[dict[str, Any]] = []
        if steps_done and self._metrics.is_file():
            lines = self._metrics.read_text(encoding="utf-8").splitlines()
            self.entries = [entry for line in lines if (entry := json.loads(line))["step"] < steps_done]
        self._metrics.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries), "utf-8")

    def rollouts(self, step: int, phase: str, groups: Sequence[Scored]) -> None:
        with (self.folder / "rollouts" / f"{step:05d}.jsonl").open("w", encoding="utf-8") as lines:
            for group in groups:
                for number, rollout in enumerate(group.rollouts):
                    verdict = group.verdicts[number].to_json()
                    verdict["build"]["log"] = verdict["build"]["log"][:_LOG_CHARS]
                    entry = {
                        "step": step,
                        "phase": phase,
                        "task": group.task.id,
                        **vars(rollout),
                        "verdict": verdict,
                        "reward": group.rewards[number],
                        "advantage": group.advantages[number] if group.advantages else None,
                    }
                    lines.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def metrics(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        with self._metrics.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry) + "\n")

    def draw(self) -> None:
        """The curves as ``curves.png`` and, with the last verdicts, as ``report.html``."""
        if not self.entries:
            return
        steps = [entry["step"] for entry in self.entries]
        made = figure(len(_CURVES) + 2)
        for axes, (key, title) in zip(made.axes, _CURVES, strict=False):
            axes.plot(steps, [entry[key] for entry in self.entries])
            axes.set_title(title)
        names = list(dict.fromkeys(name for entry in self.entries for name in entry["verdicts"]))
        totals = [sum(entry["verdicts"].values()) for entry in self.entries]
        shares = [
            [
                entry["verdicts"].get(name, 0) / total
                for entry, total in zip(self.entries, totals, strict=True)
            ]
            for name in names
        ]
        made.axes[-2].stackplot(steps, shares, labels=names)
        made.axes[-2].legend(fontsize="x-small", loc="upper left")
        made.axes[-2].set_title("verdicts")
        for key in ("rollout_seconds", "judge_seconds", "update_seconds"):
            made.axes[-1].plot(steps, [entry[key] for entry in self.entries], label=key.split("_")[0])
        made.axes[-1].legend(fontsize="x-small")
        made.axes[-1].set_title("seconds")
        for axes, key in ((axes, "phase") for axes in made.axes):
            for before, after in zip(self.entries, self.entries[1:], strict=False):
                if before[key] != after[key]:
                    axes.axvline(after["step"] - 0.5, color="grey", linestyle=":")
        made.savefig(self.folder / "curves.png", dpi=120)
        columns = ("step", "phase", "reward", "pass_rate", "groups", "loss", "kl", "entropy", "tokens")
        rows = [[_short(entry[c]) for c in columns] for entry in self.entries]
        write_page(self.folder / "report.html", "BiC-RL", [made, "<h2>Steps</h2>", table(columns, rows)])


def mix(groups: Sequence[Scored]) -> dict[str, int]:
    """How often each verdict was given, with its rule where it has one."""
    labels = Counter(
        f"{verdict.verdict}:{verdict.rule}" if verdict.rule else verdict.verdict
        for group in groups
        for verdict in group.verdicts
    )
    return dict(labels.most_common())


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
