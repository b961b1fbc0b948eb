"""Checks rows with the project's own verifier, in worker processes that keep their sessions warm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from dice_engine.verify.verdict import CORRECT, Verdict

Row = dict[str, Any]

_session: Any = None


def verify_row(session: Any, row: Row, measure: bool = False) -> Verdict | None:
    """The verdict on a row's own core, None where nothing in the row can be run (a kernel over tensors).

    ``session`` is a ``dice_engine.verify.session.VerifySession``.
    """
    if row["kind"] == "kernel_body":
        if "torch::Tensor" in row["suffix"]:
            return None
        original = row["prefix"] + row["reference"] + row["suffix"]
        return session.verify_kernel(original, row["program"], row["kernel"], measure=measure)
    return session.verify_module(row.get("pytorch", row["reference"]), row["program"], measure=measure)


def is_correct(row: Row) -> bool:
    """Whether a row is good for training: verified, or of a form that cannot be run by itself."""
    return not row.get("verdict") or row["verdict"]["verdict"] in CORRECT


def verified(lines: Iterable[str], device: str, workers: int) -> Iterator[str]:
    """JSON rows with their verdicts, in order."""
    with ProcessPoolExecutor(workers, initializer=_open, initargs=(device,)) as pool:
        yield from pool.map(_verify_line, lines, chunksize=4)


def _open(device: str) -> None:
    from dice_engine.verify.session import VerifySession

    global _session
    _session = VerifySession(device)  # type: ignore[arg-type]


def _verify_line(line: str) -> str:
    row = json.loads(line)
    verdict = verify_row(_session, row)
    if verdict is not None:
        row["verdict"] = verdict.to_json()
    return json.dumps(row, ensure_ascii=False)
