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
  if (k >= length) return;
  dst[k] = fmaf(factor, left[k], right[k]);"""
SAXPY_UNGUARDED = """
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  dst[k] = factor * left[k] + right[k];"""
SAXPY_FIRST_BLOCK = """
  int k = threadIdx.x;
  if (blockIdx.x == 0 && k < length) dst[k] = factor * left[k] + right[k];"""
FOLD_DROPS_DECAY = """
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mean[i] = sample[i];"""
FOLD_ONE_PASS = """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) mean[i] = keep * mean[i] + (1.0f - keep) * sample[i];"""
SHIFT_PLAIN = """
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] + s;"""
PEAK_FLOAT_ONLY = """
  extern __shared__ __align__(16) unsigned char raw[];
  float* best_of = reinterpret_cast<float*>(raw);
  const Value* row = matrix + static_cast<size_t>(blockIdx.x) * width;
  float top = static_cast<float>(row[0]);
  for (int c = threadIdx.x; c < width; c += kTeams * 32) top = fmaxf(top, static_cast<float>(row[c]));
  best_of[threadIdx.x] = top;
  __syncthreads();
  for (int half = kTeams * 16; half > 0; half >>= 1) {
    if (threadIdx.x < half) best_of[threadIdx.x] = fmaxf(best_of[threadIdx.x], best_of[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) maxima[blockIdx.x] = best_of[0];"""
SLOPES_NO_STRIDE = """
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int xm = x > 0 ? x - 1 : x, xp = x < w - 1 ? x + 1 : x;
  int ym = y > 0 ? y - 1 : y, yp = y < h - 1 ? y + 1 : y;
  across[y * w + x] = 0.5f * (image[y * w + xp] - image[y * w + xm]);
  down[y * w + x] = 0.5f * (image[yp * w + x] - image[ym * w + x]);"""
BLEND = "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) mixed[i] = second[i] + w * (first[i] - second[i]);"


@pytest.mark.parametrize(
    ("file", "kernel", "body"),
    [
        ("scaled_sum.cu", "scaled_sum", SAXPY_GUARDED),
        ("made_by_macros.cu", "move_up", SHIFT_PLAIN),
        ("wide_characters.cu", "mixture", BLEND),
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
        ("scaled_sum.cu", "scaled_sum", SAXPY_UNGUARDED, "out_of_bounds"),
        ("scaled_sum.cu", "scaled_sum", SAXPY_FIRST_BLOCK, None),
        ("running_mean.cu", "running_mean", FOLD_DROPS_DECAY, None),
        ("running_mean.cu", "running_mean", FOLD_ONE_PASS, None),
        ("row_maximum.cu", "row_maximum", PEAK_FLOAT_ONLY, None),
        ("gradients.cu", "gradients", SLOPES_NO_STRIDE, None),
    ],
)
def test_wrong(session: VerifySession, file: str, kernel: str, body: str, rule: str | None) -> None:
    found = judge(session, file, kernel, body)
    assert (found.verdict, found.rule) == ("mismatch", rule), found


def test_one_pass_is_right_up_to_the_grid(session: VerifySession) -> None:
    found = judge(session, "running_mean.cu", "running_mean", FOLD_ONE_PASS)
    assert "mean[16384]" in found.reason


@pytest.mark.parametrize("body", ["", "// dst[k] = 1;", '/* a = b; */ "c = d;";', "int k;"])
def test_empty(session: VerifySession, body: str) -> None:
    found = judge(session, "scaled_sum.cu", "scaled_sum", body)
    assert (found.verdict, found.rule) == ("deceptive", "empty_core")


def test_race_depends_on_the_order_of_threads(session: VerifySession) -> None:
    body = """
      int k = blockIdx.x * blockDim.x + threadIdx.x;
      if (k < length) dst[k] = factor * left[k] + right[k];
      if (k > 0 && k < length && dst[k - 1] != factor * left[k - 1] + right[k - 1]) dst[k] = 0.0f;"""
    found = judge(session, "scaled_sum.cu", "scaled_sum", body)
    assert (found.verdict, found.rule) == ("mismatch", "race"), found


def test_writes_through_const(session: VerifySession) -> None:
    body = SAXPY_GUARDED + " const_cast<float*>(left)[k] = 0.0f;"
    found = judge(session, "scaled_sum.cu", "scaled_sum", body)
    assert (found.verdict, found.rule) == ("mismatch", "input_mutation"), found


def test_far_write_is_a_crash(session: VerifySession) -> None:
    found = judge(session, "scaled_sum.cu", "scaled_sum", SAXPY_GUARDED + " dst[k + (1ll << 40)] = 1.0f;")
    assert found.verdict == "crash"
    assert "SIGSEGV" in found.reason


def test_system_call_is_never_run(session: VerifySession, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = judge(session, "scaled_sum.cu", "scaled_sum", f'system("touch {mark}");' + SAXPY_GUARDED)
    assert found.verdict == "unsafe"
    assert not mark.exists()


def test_no_plan_says_why(session: VerifySession) -> None:
    found = judge(session, "gradients.cu", "upside_down", "dst[0] = src[0];")
    assert found.verdict == "no_plan"
    assert "upside_down" in found.reason


def test_a_fixture_without_a_launch_is_declined_in_words(session: VerifySession) -> None:
    text = "// @dice fixture=tests/x.py:make\n__global__ void k(float* y, int n) { if (n > 0) y[0] = 1; }\n"
    found = session.verify_kernel(text, text + "//", "k")
    assert found.verdict == "no_plan"
    assert "a fixture needs grid= and block=" in found.reason


def test_a_build_error_names_the_users_line(session: VerifySession) -> None:
    found = judge(session, "scaled_sum.cu", "scaled_sum", "  dst[0] = undeclared;")
    assert found.verdict == "build_error"
    assert "kernel.cu:5" in found.build.log
    assert "undeclared" in found.reason
