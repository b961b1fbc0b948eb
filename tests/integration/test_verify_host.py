"""Kernels that functions of torch tensors launch, in a .cu file: the verdicts that rewrites must get (CPU backend)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.source.cuda import find_kernels
from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import Verdict

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")
TEXT = (Path(__file__).parents[1] / "sources" / "tensors.cu").read_text()


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=60.0) as opened:
        yield opened


def rewritten(kernel: str, old: str, new: str) -> str:
    span = next(span for span in find_kernels(TEXT) if span.name == kernel)
    body = TEXT[span.body_start : span.body_end]
    assert old in body
    return TEXT[: span.body_start] + body.replace(old, new, 1) + TEXT[span.body_end :]


def judge(session: VerifySession, kernel: str, old: str, new: str) -> Verdict:
    return session.verify_kernel(TEXT, rewritten(kernel, old, new), kernel)


def test_an_honest_rewrite_is_correct_at_every_size(session: VerifySession) -> None:
    verdict = judge(session, "gate_kernel", "x[i] / (scalar_t(1)", "x[i] * scalar_t(1) / (scalar_t(1)")
    assert (verdict.verdict, verdict.rule) == ("correct_unmeasured", None), verdict.reason
    assert verdict.trials >= 8


def test_right_at_one_size_only(session: VerifySession) -> None:
    verdict = judge(session, "product_kernel", "k < K", "k < 45")
    assert verdict.verdict in ("mismatch", "crash"), verdict.reason


def test_a_store_past_the_end(session: VerifySession) -> None:
    verdict = judge(session, "gate_kernel", "if (i < n) ", "")
    assert (verdict.verdict, verdict.rule) == ("mismatch", "out_of_bounds")


def test_what_is_changed_in_place_is_compared(session: VerifySession) -> None:
    kernel, old = "scale_rows_kernel", "row[i] * factor + w[i]"
    assert judge(session, kernel, old, "fmaf(row[i], factor, w[i])").verdict == "correct_unmeasured"
    assert judge(session, kernel, old, "row[i] * factor").verdict == "mismatch"


def test_arguments_from_an_annotation(session: VerifySession) -> None:
    kernel, old = "pick_kernel", "table[row * width + j]"
    assert judge(session, kernel, old, "*(table + row * width + j)").verdict == "correct_unmeasured"
    assert judge(session, kernel, old, "table[blockIdx.x * width + j]").verdict != "correct_unmeasured"


def test_a_kernel_that_cannot_be_called_has_no_plan(session: VerifySession) -> None:
    verdict = judge(session, "take_kernel", "table[row", "table[0 * row")
    assert verdict.verdict == "no_plan" and "holds indices" in verdict.reason


def test_an_empty_body(session: VerifySession) -> None:
    span = next(span for span in find_kernels(TEXT) if span.name == "gate_kernel")
    candidate = TEXT[: span.body_start] + "\n  // done\n" + TEXT[span.body_end :]
    assert session.verify_kernel(TEXT, candidate, "gate_kernel").rule == "empty_core"


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(TEXT)
    (tmp_path / "b.cu").write_text(rewritten("scale_rows_kernel", "row[i] * factor", "factor * row[i]"))
    command = [sys.executable, "-m", "dice_ls.cli", "verify", "a.cu", "b.cu", "--device", "cpu", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "correct_unmeasured"
