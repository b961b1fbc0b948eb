"""What a data file holds: counts, lengths, families, operators, verdicts, speedups; as a table and as a plot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dice_training.cuke.generate import total_chars
from dice_training.report import figure

SPEEDS = (0.5, 1.0, 1.5, 2.0, 4.0, 8.0)


def summarize(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    licences: Counter[str] = Counter()
    lengths: dict[str, list[int]] = {}
    cores: dict[str, list[int]] = {}
    families: dict[str, set[str]] = {"train": set(), "test": set()}
    speedups: list[float] = []
    for row in rows:
        kinds[row["kind"]] += 1
        splits[row["split"]] += 1
        ops.update(row["ops"])
        families[row["split"]].add(row["family"])
        lengths.setdefault(row["kind"], []).append(total_chars(row))
        cores.setdefault(row["kind"], []).append(len(row["core"]))
        licences[row.get("licence") or "unknown"] += 1
        if row.get("verdict"):
            verdicts[row["verdict"]["verdict"]] += 1
            devices[row["verdict"]["device"]] += 1
            if row["verdict"].get("speedup") is not None:
                speedups.append(row["verdict"]["speedup"])
    return {
        "samples": sum(kinds.values()),
        "kinds": dict(kinds.most_common()),
        "splits": dict(splits),
        "families": {k: len(v) for k, v in families.items()},
        "families_in_both": len(families["train"] & families["test"]),
        "chars": {k: _spread(v) for k, v in lengths.items()},
        "core_chars": {k: _spread(v) for k, v in cores.items()},
        "verdicts": dict(verdicts.most_common()),
        "devices": dict(devices.most_common()),
        "licences": dict(licences.most_common()),
        "speedups": {"timed": len(speedups)} if not speedups else _speeds(speedups),
        "ops": dict(ops.most_common()),
    }


def _spread(values: list[int]) -> dict[str, int]:
    ordered = sorted(values)
    pick = lambda q: ordered[min(len(ordered) - 1, int(q * len(ordered)))]  # noqa: E731
    return {"mean": sum(ordered) // len(ordered), "p50": pick(0.5), "p95": pick(0.95), "max": ordered[-1]}


def _speeds(values: list[float]) -> dict[str, Any]:
    ordered = sorted(values)
    quantiles = {
        f"p{q}": round(ordered[min(len(ordered) - 1, q * len(ordered) // 100)], 2) for q in (5, 50, 95)
    }
    shares = {f">={least:g}": sum(v >= least for v in values) / len(values) for least in SPEEDS}
    return {"timed": len(values), **quantiles, **shares}


def print_stats(rows: Iterable[dict[str, Any]], as_json: bool = False, plot: Path | None = None) -> None:
    found = summarize(rows)
    if plot is not None:
        _draw(found, plot)
    if as_json:
        print(json.dumps(found))
        return
    console = Console(soft_wrap=True)
    console.print(
        f"{found['samples']} samples; splits {found['splits']}; families {found['families']},"
        f" in both {found['families_in_both']}",
        highlight=False,
    )
    lengths = Table("kind", "rows", "chars mean", "p50", "p95", "max", "core mean", box=None)
    for kind, count in found["kinds"].items():
        chars, core = found["chars"][kind], found["core_chars"][kind]
        cells = (count, *(chars[key] for key in ("mean", "p50", "p95", "max")), core["mean"])
        lengths.add_row(kind, *map(str, cells))
    console.print(lengths)
    for title in ("verdicts", "devices", "licences"):
        if found[title]:
            print(f"{title}:", ", ".join(f"{k} {v}" for k, v in found[title].items()))
    speeds = found["speedups"]
    if speeds["timed"]:
        shares = ", ".join(f"{key}x {value:.0%}" for key, value in speeds.items() if key.startswith(">"))
        print(
            f"speedups of {speeds['timed']}: p5 {speeds['p5']} p50 {speeds['p50']} p95 {speeds['p95']}; {shares}"
        )
    print(f"{len(found['ops'])} operators:", ", ".join(f"{k} {v}" for k, v in found["ops"].items()))


def _draw(found: dict[str, Any], path: Path) -> None:
    made = figure(4)
    kinds, lengths, speeds, ops = made.axes
    kinds.bar(list(found["kinds"]), list(found["kinds"].values()))
    kinds.set_title("rows by kind")
    names = list(found["chars"])
    for offset, key in ((-0.25, "p50"), (0.0, "p95"), (0.25, "max")):
        places = [number + offset for number in range(len(names))]
        lengths.bar(places, [found["chars"][name][key] for name in names], width=0.25, label=key)
    lengths.set_xticks(range(len(names)), names)
    lengths.set_title("characters read and written")
    lengths.legend()
    if found["speedups"]["timed"]:
        speeds.plot(SPEEDS, [found["speedups"][f">={least:g}"] for least in SPEEDS], marker="o")
        speeds.set_ylim(0, 1)
    else:
        speeds.text(0.5, 0.5, "not timed", ha="center", transform=speeds.transAxes)
    speeds.set_title("share of rows at least so many times as fast")
    top = list(found["ops"].items())[:40]
    ops.bar([name for name, _ in top], [count for _, count in top])
    ops.tick_params(axis="x", rotation=90, labelsize=6)
    ops.set_title(f"rows by operator ({len(top)} of {len(found['ops'])})")
    made.savefig(path, dpi=120)
