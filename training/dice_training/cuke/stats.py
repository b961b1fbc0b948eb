"""What a data file holds: counts, lengths, families, operators, verdicts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from dice_training.cuke.generate import total_chars


def summarize(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    lengths: dict[str, list[int]] = {}
    cores: dict[str, list[int]] = {}
    families: dict[str, set[str]] = {"train": set(), "test": set()}
    for row in rows:
        kinds[row["kind"]] += 1
        splits[row["split"]] += 1
        ops.update(row["ops"])
        families[row["split"]].add(row["family"])
        lengths.setdefault(row["kind"], []).append(total_chars(row))
        cores.setdefault(row["kind"], []).append(len(row["core"]))
        if row.get("verdict"):
            verdicts[row["verdict"]["verdict"]] += 1
    return {
        "samples": sum(kinds.values()),
        "kinds": dict(kinds.most_common()),
        "splits": dict(splits),
        "families": {k: len(v) for k, v in families.items()},
        "families_in_both": len(families["train"] & families["test"]),
        "chars": {k: _lengths(v) for k, v in lengths.items()},
        "core_chars": {k: _lengths(v) for k, v in cores.items()},
        "verdicts": dict(verdicts.most_common()),
        "ops": dict(ops.most_common()),
    }


def _lengths(values: list[int]) -> dict[str, int]:
    ordered = sorted(values)
    pick = lambda q: ordered[min(len(ordered) - 1, int(q * len(ordered)))]  # noqa: E731
    return {"mean": sum(ordered) // len(ordered), "p50": pick(0.5), "p95": pick(0.95), "max": ordered[-1]}


def print_stats(rows: Iterable[dict[str, Any]], as_json: bool = False) -> None:
    found = summarize(rows)
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"{found['samples']} samples; splits {found['splits']}; families {found['families']},"
        f" in both {found['families_in_both']}"
    )
    for kind, count in found["kinds"].items():
        chars, core = found["chars"][kind], found["core_chars"][kind]
        print(
            f"  {kind:17s} {count:7d}  chars mean {chars['mean']} p50 {chars['p50']} p95 {chars['p95']}"
            f" max {chars['max']}; core mean {core['mean']}"
        )
    if found["verdicts"]:
        print("verdicts:", ", ".join(f"{k} {v}" for k, v in found["verdicts"].items()))
    print(f"{len(found['ops'])} operators:", ", ".join(f"{k} {v}" for k, v in found["ops"].items()))
