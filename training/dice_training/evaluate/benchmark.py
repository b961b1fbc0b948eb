"""``dice eval tasks`` and ``kernelbench``: a checkpoint makes PyTorch tasks fast; what it wrote is judged and timed.

Results are kept task by task in ``results.jsonl``, so that a run that was stopped goes on with what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_engine.verify.verdict import Verdict

from dice_training.cuke.verify import Row
from dice_training.data import DataError, request_of
from dice_training.evaluate.page import write_report
from dice_training.evaluate.scores import Result, summarise
from dice_training.judging import LOCAL, Case, Options, open_pool
from dice_training.progress import Progress

if TYPE_CHECKING:
    from dice_engine.verify.session import Baseline

    from dice_training.pool.work import Device

Report = Callable[[str], None]
MAX_NEW_TOKENS = 1536
"""Of a core: with prompts of up to 512 tokens, all of nano's context."""
CHUNK = 64
"""Tasks that are decoded, judged and kept together."""


@dataclass(frozen=True)
class Protocol:
    """What the scores depend on; results of another protocol are never mixed in."""

    source: str
    checkpoint: str
    n: int
    seed: int
    temperature: float
    device: str
    baseline: str
    """``none`` on a CPU, where nothing is timed."""


def run(
    rows: Sequence[Row],
    protocol: Protocol,
    out: Path,
    *,
    checkpoint: Path | None,
    device: Device,
    workers: int,
    report: Report,
    pool: str = LOCAL,
) -> dict[str, Any]:
    """Evaluate ``rows`` into the folder ``out`` and return the summary. Raises DataError for a folder that holds
    results of another protocol."""
    out.mkdir(parents=True, exist_ok=True)
    known = _known(out, protocol)
    missing = [row for row in rows if row["id"] not in known]
    if known and missing:
        report(f"{len(rows) - len(missing)} of {len(rows)} tasks are done already")
    if missing:
        for result in _evaluate(missing, protocol, checkpoint, device, pool, workers, out):
            known[result.id] = result
    results = [known[row["id"]] for row in rows]
    summary = {"protocol": asdict(protocol), **summarise(results, protocol.n)}
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    write_report(out, summary, results)
    return summary


def _known(out: Path, protocol: Protocol) -> dict[str, Result]:
    place, settings = out / "results.jsonl", out / "protocol.json"
    if settings.is_file() and place.is_file():
        before = json.loads(settings.read_text(encoding="utf-8"))
        changed = [key for key, value in asdict(protocol).items() if before.get(key) != value]
        if changed:
            raise DataError(
                f"{out} holds results with another {changed[0]} ({before.get(changed[0])}): choose another --out"
            )
    settings.write_text(json.dumps(asdict(protocol), indent=2) + "\n", encoding="utf-8")
    found: dict[str, Result] = {}
    if place.is_file():
        whole = []
        for line in place.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut off when the run was killed
            verdicts = [Verdict.from_json(verdict) for verdict in entry["verdicts"]]
            found[entry["id"]] = Result(entry["id"], verdicts, entry["plain"])
            whole.append(line + "\n")
        place.write_text("".join(whole), encoding="utf-8")
    return found


def _evaluate(
    rows: Sequence[Row],
    protocol: Protocol,
    checkpoint: Path | None,
    device: Device,
    pool: str,
    workers: int,
    out: Path,
) -> Iterator[Result]:
    from dice_engine.engine import Engine

    baseline: Baseline = "eager" if protocol.baseline == "none" else protocol.baseline  # type: ignore[assignment]
    # The workers start while the engine loads and decodes.
    with (
        open_pool(pool, Options(device, baseline), workers, plain=True) as opened,
        (out / "results.jsonl").open("a", encoding="utf-8") as lines,
        Progress("tasks", len(rows)) as progress,
    ):
        engine = Engine.load(checkpoint, device=device)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            asked = [request_of(row) for row in part]
            n, seed, temperature = protocol.n, protocol.seed, protocol.temperature
            found = engine.candidates_many(
                asked, n, seed, temperature=temperature, max_new_tokens=MAX_NEW_TOKENS
            )
            cores = [[candidate.core for candidate in candidates] for candidates in found]
            progress.note(f"decoded {start + len(part)}/{len(rows)} tasks")
            cases = [Case(row, mine) for row, mine in zip(part, cores, strict=True)]
            for index, judged in opened.judge(cases, measure=True):
                verdicts = [judgement.verdict for judgement in judged]
                plain = [bool(judgement.plain) for judgement in judged]
                row = part[index]
                entry = {"id": row["id"], "cores": cores[index], "plain": plain}
                entry["verdicts"] = [verdict.to_json() for verdict in verdicts]
                lines.write(json.dumps(entry, ensure_ascii=False) + "\n")
                lines.flush()
                progress.advance()
                yield Result(row["id"], verdicts, plain)
