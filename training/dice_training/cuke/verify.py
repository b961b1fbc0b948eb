"""Checks a row with the project's own verifier."""

from __future__ import annotations

import os
from typing import Any

from dice_engine.verify.verdict import CORRECT, Verdict

Row = dict[str, Any]


def verify_row(session: Any, row: Row, core: str | None = None, measure: bool = False) -> Verdict:
    """The verdict on ``core`` (the row's own by default) in the place of the row's core.

    ``session`` is a ``dice_engine.verify.session.VerifySession``. Python programs are compared with the PyTorch
    module; a kernel that stands in a string runs in the file around it (the row's ``around``).
    """
    if row["kind"] == "kernel_body" and "around" not in row:
        original, program = row.get("original") or _existing(row), _program(row, core)
        return session.verify_kernel(original, program, row["kernel"], measure=measure)
    reference, name, program = _modules(row, core)
    return session.verify_module(reference, program, reference_class=name, measure=measure)


def same_outputs(session: Any, row: Row, core: str) -> bool:
    """Whether the outputs with ``core`` agree with the PyTorch module's and nothing else is asked; False for rows
    without a module."""
    if row["kind"] == "kernel_body" and "around" not in row:
        return False
    reference, name, program = _modules(row, core)
    return session.same_outputs(reference, program, reference_class=name)


def _modules(row: Row, core: str | None) -> tuple[str, str, str]:
    """The reference's text, the name of its class, and the candidate's text."""
    program = _program(row, core)
    reference, name = row.get("pytorch", row["reference"]), row.get("class_name", "Model")
    if "around" in row:
        before, after = row["around"]
        program = before + program + after
    elif row["kind"] == "load_inline_core" and f"class {name}(" not in reference:
        # Nothing but the core that stood there is known: the same class, before and after.
        reference, name = _existing(row), "ModelNew"
    return reference, name, program


def _program(row: Row, core: str | None) -> str:
    return row["prefix"] + (row["core"] if core is None else core) + row["suffix"]


def _existing(row: Row) -> str:
    return row["prefix"] + row["reference"] + row["suffix"]


def measurements(verdict: Verdict) -> Row:
    """What a row says about how it was verified."""
    return {
        "verdict": verdict.to_json(),
        "device": verdict.device,
        "measurements": {
            "reference_ms": verdict.reference_ms,
            "candidate_ms": verdict.candidate_ms,
            "speedup": verdict.speedup,
            "speedup_low": verdict.speedup_low,
            "speedup_high": verdict.speedup_high,
        },
    }


def is_correct(row: Row) -> bool:
    return bool(row.get("verdict")) and row["verdict"]["verdict"] in CORRECT


def use_gpu(worker: int) -> None:
    """Leave this process one of the GPUs that it sees, in turn. To be called before CUDA is initialised."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker % len(gpus)]
