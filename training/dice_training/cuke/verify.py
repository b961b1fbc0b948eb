"""Checks rows with the project's own verifier, in worker processes that keep their sessions warm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from dice_engine.verify.verdict import CORRECT, Verdict

Row = dict[str, Any]

_session: Any = None


def verify_row(session: Any, row: Row, core: str | None = None, measure: bool = False) -> Verdict:
    """The verdict on ``core`` (the row's own by default) in the place of the row's core.

    ``session`` is a ``dice_engine.verify.session.VerifySession``. Python programs are compared with the PyTorch
    module; a kernel that stands in a string runs in the file around it (the row's ``around``).
    """
    program = row["prefix"] + (row["core"] if core is None else core) + row["suffix"]
    if row["kind"] == "kernel_body" and "around" not in row:
        original = row["prefix"] + row["reference"] + row["suffix"]
        return session.verify_kernel(original, program, row["kernel"], measure=measure)
    if "around" in row:
        before, after = row["around"]
        program = before + program + after
    reference = row.get("pytorch", row["reference"])
    name = row.get("class_name", "Model")
    return session.verify_module(reference, program, reference_class=name, measure=measure)


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
