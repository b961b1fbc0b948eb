"""An evaluation for people: a table in the terminal, a plot, and an HTML report that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_training import report
from dice_training.evaluate.failures import failure_class
from dice_training.evaluate.scores import FAST_P, Result, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PROTOCOL = (
    "Candidate 0 is greedy, the others are drawn. Each task's <code>Model</code> is the reference, the candidate its "
    "<code>ModelNew</code> with the same weights. Robust: every check of <code>dice verify</code>. Unchecked: outputs "
    "agree within 1e-2 on 5 seeds and nothing else is asked. Times are taken in turns in one run, one candidate at a "
    "time. fast_p: share of all tasks that are correct (robust) and more than p times as fast."
)


def lines(summary: dict[str, Any]) -> list[str]:
    """The scores as text."""
    passed = [f"{key} {value:.1%}" for key, value in summary.items() if key.startswith("pass@")]
    found = [
        f"{summary['tasks']} tasks, {summary['n']} candidates each, {summary['device']}",
        "  ".join(passed),
        f"correct  robust {summary['correct_robust']:.1%}  unchecked {summary['correct_unchecked']:.1%}",
    ]
    if not summary["speed"]:
        found.append("nothing was timed: speed needs a GPU")
    for baseline, parts in summary["speed"].items():
        for which, values in parts.items():
            shares = "  ".join(f"{p}: {share:.1%}" for p, share in values["fast_p"].items())
            mean = f"{values['geomean']:.2f}x" if values["geomean"] else "none"
            found.append(
                f"fast_p against {baseline}, {which}:  {shares}  geometric mean {mean} of {values['timed']}"
            )
    for title in ("verdicts", "failures"):
        total = sum(summary[title].values())
        found.append(f"{title} of all candidates:")
        found += [f"  {name:40}{count:>6}  {count / total:6.1%}" for name, count in summary[title].items()]
    return found


def write_report(folder: Path, summary: dict[str, Any], results: Sequence[Result]) -> None:
    """``plot.png`` and ``report.html``."""
    made = _plot(summary, results)
    made.savefig(folder / "plot.png", dpi=120)
    protocol = summary["protocol"]
    title = f"{Path(protocol['source']).name}: {summary['correct_robust']:.1%} correct"
    columns = (
        "task",
        "verdict",
        "unchecked",
        "correct of n",
        *(f"x {b}" for b in summary["speed"]),
        "failure",
    )
    rows = [
        (
            result.id,
            label(result.verdicts[0]),
            "yes" if result.plain[0] else "no",
            f"{sum(result.correct)}/{len(result.correct)}",
            *(_times(result.speedup(0, baseline)) for baseline in summary["speed"]),
            failure_class(result.verdicts[0]) or "",
        )
        for result in results
    ]
    report.write_page(
        folder / "report.html",
        title,
        [
            f"<p>{_PROTOCOL}</p>",
            report.table(("setting", "value"), list(protocol.items())),
            "<h2>Scores</h2>",
            *_tables(summary),
            made,
            "<h2>What went wrong</h2>",
            report.table(("class", "candidates"), list(summary["failures"].items())),
            "<h2>Tasks (greedy candidate)</h2>",
            report.table(columns, rows),
        ],
    )


def _tables(summary: dict[str, Any]) -> list[str]:
    shares = [(key, f"{value:.1%}") for key, value in summary.items() if key.startswith("pass@")]
    shares.append(("correct, robust check", f"{summary['correct_robust']:.1%}"))
    shares.append(("correct, unchecked", f"{summary['correct_unchecked']:.1%}"))
    fast = [
        (
            f"{baseline}, {which}",
            *(f"{share:.1%}" for share in values["fast_p"].values()),
            _times(values["geomean"]),
        )
        for baseline, parts in summary["speed"].items()
        for which, values in parts.items()
    ]
    found = [report.table(("score", "share of tasks"), shares)]
    if fast:
        head = ("against", *(f"fast_{p:g}" for p in FAST_P), "geometric mean")
        found.append(report.table(head, fast))
    return found


def _plot(summary: dict[str, Any], results: Sequence[Result]) -> Figure:
    made = report.figure(4)
    verdicts, failures, fast, speeds = made.axes
    for axes, title in ((verdicts, "verdicts"), (failures, "failures")):
        names = list(summary[title])[:10][::-1]
        axes.barh(names, [summary[title][name] for name in names])
        axes.tick_params(axis="y", labelsize=7)
        axes.set_title(f"{title}, all candidates")
    for baseline, parts in summary["speed"].items():
        shares = list(parts["first"]["fast_p"].values())
        fast.step(FAST_P, shares, where="mid", marker="o", label=baseline)
        times = [s for result in results if (s := result.speedup(0, baseline)) is not None]
        speeds.hist(times, bins=30, alpha=0.6, label=baseline)
    fast.set_title("fast_p, greedy candidate")
    fast.set_ylim(0, 1)
    speeds.set_title("speedups of correct greedy candidates")
    if summary["speed"]:
        fast.legend()
        speeds.legend()
    else:
        for axes in (fast, speeds):
            axes.text(0.5, 0.5, "not timed", ha="center", transform=axes.transAxes)
    return made


def _times(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else ""
