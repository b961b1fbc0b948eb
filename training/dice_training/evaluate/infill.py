"""``dice eval infill FILE``: decode the core of every row, verify each candidate, report pass@k."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.verify.verdict import CORRECT, Verdict

from dice_training.data import DataError, read_rows, request_of
from dice_training.evaluate.benchmark import MAX_NEW_TOKENS
from dice_training.evaluate.scores import label, mean
from dice_training.judging import LOCAL, Case, JudgePool, Options, open_pool

if TYPE_CHECKING:
    from dice_training.pool.work import Device

Report = Callable[[str], None]


@dataclass
class Judged:
    """One row with its candidates' verdicts, candidate 0 being the greedy one."""

    row: dict[str, Any]
    cores: list[str]
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def correct(self) -> list[bool]:
        return [verdict.verdict in CORRECT for verdict in self.verdicts]


def evaluate(
    file: Path,
    *,
    checkpoint: Path | None,
    device: Device,
    n: int,
    limit: int | None,
    seed: int,
    workers: int,
    out: Path | None,
    report: Report,
    pool: str = LOCAL,
    decoded_before: Path | None = None,
) -> dict[str, Any]:
    """Decode ``n`` candidates for each test row of ``file`` and verify them on ``device`` (``cpu`` or ``cuda``).

    ``decoded_before``: the ``out`` of an earlier evaluation, whose candidates are verified again instead.
    """
    rows = list(read_rows(file, "test"))[:limit]
    start = time.monotonic()
    # The workers start while the engine decodes.
    with open_pool(pool, Options(device), workers) as opened:
        if decoded_before is not None:
            decoded = read_candidates(rows, decoded_before, n)
        else:
            decoded = decode(rows, checkpoint, device, n, seed, report)
        decode_seconds = time.monotonic() - start
        judged = judge(decoded, opened, report)
    summary = summarise(judged, n)
    summary["decode_seconds"] = round(decode_seconds, 1)
    summary["verify_seconds"] = round(time.monotonic() - start - decode_seconds, 1)
    if out is not None:
        with out.open("w", encoding="utf-8") as lines:
            for item in judged:
                verdicts = [verdict.to_json() for verdict in item.verdicts]
                lines.write(
                    json.dumps({"id": item.row["id"], "cores": item.cores, "verdicts": verdicts}) + "\n"
                )
    return summary


def decode(
    rows: list[dict[str, Any]], checkpoint: Path | None, device: Device, n: int, seed: int, report: Report
) -> list[Judged]:
    from dice_engine.engine import Engine

    engine = Engine.load(checkpoint, device=device)
    every = 25
    told = 0

    def on_done(count: int) -> None:
        nonlocal told
        if count // every > told // every or count == len(rows):
            report(f"decoded {count}/{len(rows)}")
        told = count

    asked = [request_of(row) for row in rows]
    found = engine.candidates_many(asked, n, seed, on_done, max_new_tokens=MAX_NEW_TOKENS)
    return [Judged(row, [c.core for c in candidates]) for row, candidates in zip(rows, found, strict=True)]


def read_candidates(rows: list[dict[str, Any]], file: Path, n: int) -> list[Judged]:
    """The first ``n`` candidates of each row that ``file`` has. Raises :class:`DataError` where it has none."""
    try:
        entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        cores = {entry["id"]: entry["cores"] for entry in entries}
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: not the --out of an evaluation: {error}") from error
    found = [Judged(row, cores[row["id"]][:n]) for row in rows if row["id"] in cores]
    if not found:
        raise DataError(f"{file}: no candidates for the rows of this file")
    return found


def judge(decoded: list[Judged], pool: JudgePool, report: Report) -> list[Judged]:
    """Verify every distinct candidate of every row once."""
    cases = [Case(item.row, item.cores) for item in decoded]
    for number, (index, judgements) in enumerate(pool.judge(cases), 1):
        decoded[index].verdicts = [judgement.verdict for judgement in judgements]
        if number % 25 == 0 or number == len(decoded):
            report(f"judged {number}/{len(decoded)}")
    return decoded


def summarise(judged: Iterable[Judged], n: int) -> dict[str, Any]:
    """pass@k is the share of rows with a correct one among the first k candidates: what is offered to who asks for k.
    ``distinct`` is how many different candidates a row has on average, spacing aside."""
    items = list(judged)
    kinds = sorted({item.row["kind"] for item in items})

    def scores(part: list[Judged]) -> dict[str, Any]:
        result: dict[str, Any] = {"rows": len(part), "pass@1": mean(item.correct[0] for item in part)}
        for k in (2, 4, 8):
            if k <= n:
                result[f"pass@{k}"] = mean(any(item.correct[:k]) for item in part)
        result["exact@1"] = mean(item.cores[0] == item.row["core"] for item in part)
        return result

    summary = {"all": scores(items)}
    summary.update({kind: scores([item for item in items if item.row["kind"] == kind]) for kind in kinds})
    verdicts = Counter(label(verdict) for item in items for verdict in item.verdicts)
    distinct = mean(len({" ".join(core.split()) for core in item.cores}) for item in items)
    return {"n": n, **summary, "distinct": distinct, "verdicts": dict(verdicts.most_common())}
