"""Kernels in .cu files against the verdicts that they must get (CPU backend)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.source.cuda import find_kernels
from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import Verdict

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

CASES = Path(__file__).parents[1] / "cases"


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=20.0) as opened:
        yield opened


def judge(session: VerifySession, file: str, kernel: str, body: str) -> Verdict:
    """The verdict on ``body`` in place of the kernel's own."""
    original = (CASES / file).read_bytes()
    span = next(span for span in find_kernels(original.decode()) if span.name == kernel)
    candidate = original[: span.body_start] + f"\n{body}\n".encode() + original[span.body_end :]
    return session.verify_kernel(original.decode(), candidate.decode(), kernel)


SAXPY_GUARDED = """
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= count) return;
  dst[k] = fmaf(alpha, lhs[k], rhs[k]);"""
SAXPY_UNGUARDED = """
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  dst[k] = alpha * lhs[k] + rhs[k];"""
SAXPY_FIRST_BLOCK = """
  int k = threadIdx.x;
  if (blockIdx.x == 0 && k < count) dst[k] = alpha * lhs[k] + rhs[k];"""
FOLD_DROPS_DECAY = """
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) acc[i] = delta[i];"""
FOLD_ONE_PASS = """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) acc[i] = decay * acc[i] + (1.0f - decay) * delta[i];"""
SHIFT_PLAIN = """
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] + s;"""
PEAK_FLOAT_ONLY = """
  extern __shared__ __align__(16) unsigned char scratch[];
  float* part = reinterpret_cast<float*>(scratch);
  const Elem* row = table + static_cast<size_t>(blockIdx.x) * cols;
  float best = static_cast<float>(row[0]);
  for (int c = threadIdx.x; c < cols; c += kWarps * 32) best = fmaxf(best, static_cast<float>(row[c]));
  part[threadIdx.x] = best;
  __syncthreads();
  for (int half = kWarps * 16; half > 0; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) peaks[blockIdx.x] = part[0];"""
SLOPES_NO_STRIDE = """
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int xm = x > 0 ? x - 1 : x, xp = x < w - 1 ? x + 1 : x;
  int ym = y > 0 ? y - 1 : y, yp = y < h - 1 ? y + 1 : y;
  gx[y * w + x] = 0.5f * (img[y * w + xp] - img[y * w + xm]);
  gy[y * w + x] = 0.5f * (img[yp * w + x] - img[ym * w + x]);"""
BLEND = "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) mix[i] = t1[i] + w * (t0[i] - t1[i]);"


@pytest.mark.parametrize(
    ("file", "kernel", "body"),
    [
        ("saxpy_plain.cu", "axpb", SAXPY_GUARDED),
        ("macro_made.cu", "shift_add", SHIFT_PLAIN),
        ("unicode_crlf.cu", "blend", BLEND),
    ],
)
def test_right(session: VerifySession, file: str, kernel: str, body: str) -> None:
    found = judge(session, file, kernel, body)
    assert found.verdict == "correct_unmeasured", found
    assert found.trials >= 5
    assert found.device == "cpu"
    assert found.build.backend == "cpu"


@pytest.mark.parametrize(
    ("file", "kernel", "body", "rule"),
    [
        ("saxpy_plain.cu", "axpb", SAXPY_UNGUARDED, "out_of_bounds"),
        ("saxpy_plain.cu", "axpb", SAXPY_FIRST_BLOCK, None),
        ("inplace_accum.cu", "fold_in", FOLD_DROPS_DECAY, None),
        ("inplace_accum.cu", "fold_in", FOLD_ONE_PASS, None),
        ("aliased_bounds.cu", "row_peak", PEAK_FLOAT_ONLY, None),
        ("needs_annotation.cu", "slopes", SLOPES_NO_STRIDE, None),
    ],
)
def test_wrong(session: VerifySession, file: str, kernel: str, body: str, rule: str | None) -> None:
    found = judge(session, file, kernel, body)
    assert (found.verdict, found.rule) == ("mismatch", rule), found


def test_one_pass_is_right_up_to_the_grid(session: VerifySession) -> None:
    found = judge(session, "inplace_accum.cu", "fold_in", FOLD_ONE_PASS)
    assert "acc[16384]" in found.reason


@pytest.mark.parametrize("body", ["", "// dst[k] = 1;", '/* a = b; */ "c = d;";', "int k;"])
def test_empty(session: VerifySession, body: str) -> None:
    found = judge(session, "saxpy_plain.cu", "axpb", body)
    assert (found.verdict, found.rule) == ("deceptive", "empty_core")


def test_race_depends_on_the_order_of_threads(session: VerifySession) -> None:
    body = """
      int k = blockIdx.x * blockDim.x + threadIdx.x;
      if (k < count) dst[k] = alpha * lhs[k] + rhs[k];
      if (k > 0 && k < count && dst[k - 1] != alpha * lhs[k - 1] + rhs[k - 1]) dst[k] = 0.0f;"""
    found = judge(session, "saxpy_plain.cu", "axpb", body)
    assert (found.verdict, found.rule) == ("mismatch", "race"), found


def test_writes_through_const(session: VerifySession) -> None:
    body = SAXPY_GUARDED + " const_cast<float*>(lhs)[k] = 0.0f;"
    found = judge(session, "saxpy_plain.cu", "axpb", body)
    assert (found.verdict, found.rule) == ("mismatch", "input_mutation"), found


def test_far_write_is_a_crash(session: VerifySession) -> None:
    found = judge(session, "saxpy_plain.cu", "axpb", SAXPY_GUARDED + " dst[k + (1ll << 40)] = 1.0f;")
    assert found.verdict == "crash"
    assert "SIGSEGV" in found.reason


def test_system_call_is_never_run(session: VerifySession, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = judge(session, "saxpy_plain.cu", "axpb", f'system("touch {mark}");' + SAXPY_GUARDED)
    assert found.verdict == "unsafe"
    assert not mark.exists()


def test_no_plan_says_why(session: VerifySession) -> None:
    found = judge(session, "needs_annotation.cu", "flip_rows", "dst[0] = src[0];")
    assert found.verdict == "no_plan"
    assert "flip_rows" in found.reason


def test_a_fixture_without_a_launch_is_declined_in_words(session: VerifySession) -> None:
    text = "// @dice fixture=tests/x.py:make\n__global__ void k(float* y, int n) { if (n > 0) y[0] = 1; }\n"
    found = session.verify_kernel(text, text + "//", "k")
    assert found.verdict == "no_plan"
    assert "a fixture needs grid= and block=" in found.reason


def test_a_build_error_names_the_users_line(session: VerifySession) -> None:
    found = judge(session, "saxpy_plain.cu", "axpb", "  dst[0] = undeclared;")
    assert found.verdict == "build_error"
    assert "kernel.cu:5" in found.build.log
    assert "undeclared" in found.reason
