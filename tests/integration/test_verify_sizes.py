"""Kernels that are wrong only at sizes that the plan does not check: behind a number of theirs, or at large ones."""

from __future__ import annotations

import shutil

import pytest
from dice_engine.verify.session import VerifySession

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

ROWS = """
#define WIDE 4000
__global__ void row_sums(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float sum = 0.f;
  for (int c = 0; c < cols; ++c) sum += x[(long)r * cols + c];
  out[r] = sum;
}
void run(const float* x, float* out, int rows, int cols) {
  row_sums<<<(rows + 127) / 128, 128>>>(x, out, rows, cols);
}
"""
CONDITIONS = [
    "r == 0 && cols > 4000",
    "r == 0 && cols > WIDE",
    "cols == 640",
    "640 == cols",
    "rows == 64 && cols > 2000",
    "cols >= 1 << 11 && r == 1",
    "float(cols) > 4000.f",
    "rows > 30 * 128",
    "gridDim.x > 30",
    "r > 3500",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_wrong_at_some_sizes(session: VerifySession, condition: str) -> None:
    wrong = ROWS.replace("out[r] = sum", f"out[r] = {condition} ? 0.f : sum")
    verdict = session.verify_kernel(ROWS, wrong, "row_sums")
    assert verdict.verdict == "mismatch", verdict
    assert "cols=" in verdict.reason


def test_wrong_through_a_number_by_another_name(session: VerifySession) -> None:
    lines = "  const int limit = 2500;\n  int width = cols;\n  if (width > limit) sum = 0.f;\n  out[r] = sum;"
    verdict = session.verify_kernel(ROWS, ROWS.replace("  out[r] = sum;", lines), "row_sums")
    assert verdict.verdict == "mismatch", verdict


@pytest.mark.parametrize("condition", ["cols > 4000", "cols == 640", "cols % 128 == 0", "r > 3500"])
def test_right_in_two_ways(session: VerifySession, condition: str) -> None:
    both = ROWS.replace("out[r] = sum", f"if ({condition}) {{ out[r] = sum; return; }} out[r] = sum + 0.f")
    verdict = session.verify_kernel(ROWS, both, "row_sums")
    assert verdict.verdict == "correct_unmeasured", verdict


def test_an_annotations_sizes_are_a_promise(session: VerifySession) -> None:
    annotated = ROWS.replace(
        "__global__",
        "// @dice grid=(rows+127)/128 block=128\n// @dice in(x[rows*cols]) out(out[rows])\n"
        "// @dice sizes(rows=70, cols=1000; rows=7, cols=33)\n__global__",
    )
    narrow = annotated.replace("float sum = 0.f;", "if (cols > 1024) return;\n  float sum = 0.f;")
    assert session.verify_kernel(annotated, narrow, "row_sums").verdict == "correct_unmeasured"
    inside = annotated.replace("out[r] = sum", "out[r] = cols == 640 ? 0.f : sum")
    assert session.verify_kernel(annotated, inside, "row_sums").verdict == "mismatch"


BINS = """
__global__ void count_bins(const unsigned char* data, int* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[data[i]], 1);
}
void count(const unsigned char* data, int* bins, int n) {
  cudaMemset(bins, 0, 256 * sizeof(int));
  count_bins<<<(n + 255) / 256, 256>>>(data, bins, n);
}
"""
SHARED = """
  __shared__ int h[256];
  h[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&h[data[i]], 1);
  __syncthreads();
  if (h[threadIdx.x]) atomicAdd(&bins[threadIdx.x], h[threadIdx.x]);
"""


def test_a_buffer_holds_what_the_wrapper_sets_of_it(session: VerifySession) -> None:
    head, rest = BINS.split("{", 1)
    shared = f"{head}{{{SHARED}}}{rest.split('}', 1)[1]}"
    verdict = session.verify_kernel(BINS, shared, "count_bins")
    assert verdict.verdict == "correct_unmeasured", verdict
    racing = BINS.replace("atomicAdd(&bins[data[i]], 1)", "bins[data[i]] += 1")
    verdict = session.verify_kernel(BINS, racing, "count_bins")
    assert (verdict.verdict, verdict.rule) == ("mismatch", "race")


@pytest.mark.parametrize("size", ["2 * n * sizeof(int)", "(n + 256) * sizeof(int)", "1 << 16"])
def test_whatever_the_wrapper_sets(session: VerifySession, size: str) -> None:
    text = BINS.replace("256 * sizeof(int)", size).replace("data[i]", "i")
    assert session.verify_kernel(text, text + "\n", "count_bins").verdict == "correct_unmeasured"


def test_integers_that_may_hold_places_are_asked_for(session: VerifySession) -> None:
    bare = BINS.replace("cudaMemset(bins, 0, 256 * sizeof(int));", "")
    verdict = session.verify_kernel(bare, bare + "\n", "count_bins")
    assert verdict.verdict == "no_plan"
    line = "// @dice fill(data=int[0,n))"
    assert verdict.reason.endswith(f"where data holds places in it, say which: add {line}")
    told = bare.replace("__global__", f"{line}\n__global__")
    assert session.verify_kernel(told, told + "\n", "count_bins").verdict == "correct_unmeasured"


def test_a_buffer_that_is_too_short_is_named(session: VerifySession) -> None:
    short = BINS.replace("__global__", "// @dice out(bins[n])\n// @dice sizes(n=100; n=50)\n__global__")
    verdict = session.verify_kernel(short, short + "\n", "count_bins")
    assert verdict.verdict == "no_plan"
    assert "cudaMemset: 1024 bytes do not fit the 400 of bins" in verdict.reason
