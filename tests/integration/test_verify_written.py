"""Kernels that write a few elements of long buffers: these few are what counts, whatever else lies there."""

from __future__ import annotations

import shutil

import pytest
from dice_engine.verify.session import VerifySession

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

SYNCHRONOUS = """
__global__ void dot(const double* a, const double* b, double* partial, int n) {
  __shared__ double cache[64];
  int tid = threadIdx.x;
  double sum = 0.0;
  for (int i = blockIdx.x * 64 + tid; i < n; i += 64 * gridDim.x) sum += a[i] * b[i];
  cache[tid] = sum;
  __syncthreads();
  if (tid < 32) {
    volatile double* v = cache;
    v[tid] += v[tid + 32];
    v[tid] += v[tid + 16];
    v[tid] += v[tid + 8];
    v[tid] += v[tid + 4];
    v[tid] += v[tid + 2];
    v[tid] += v[tid + 1];
  }
  if (tid == 0) partial[blockIdx.x] = cache[0];
}
void launch_dot(const double* a, const double* b, double* partial, int n, int repeats, int blocks) {
  dot<<<blocks, 64>>>(a, b, partial, n);
}
"""
TINY = """
__global__ void first_rows(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) out[r] = 1e-5f * (x[r * cols] + x[r * cols + 1]);
}
void run(const float* x, float* out, int rows, int cols) {
  first_rows<<<(rows + 127) / 128, 128>>>(x, out, rows, cols);
}
"""


def test_an_original_that_depends_on_the_order_of_threads_proves_nothing(session: VerifySession) -> None:
    wrong = SYNCHRONOUS.replace("sum += a[i] * b[i]", "sum += 1.0")
    verdict = session.verify_kernel(SYNCHRONOUS, wrong, "dot")
    assert verdict.verdict == "no_plan" and "threads run in another order" in verdict.reason, verdict


@pytest.mark.parametrize(
    ("old", "new"), [("1e-5f", "1.02e-5f"), ("x[r * cols] +", "__half2float(__float2half(x[r * cols])) +")]
)
def test_tiny_results_in_a_long_buffer_are_held_to_their_own_size(
    session: VerifySession, old: str, new: str
) -> None:
    candidate = "#include <cuda_fp16.h>\n" + TINY.replace(old, new)
    verdict = session.verify_kernel("#include <cuda_fp16.h>\n" + TINY, candidate, "first_rows")
    assert verdict.verdict == "mismatch", verdict


def test_an_honest_rewrite_of_it_passes(session: VerifySession) -> None:
    candidate = TINY.replace(
        "1e-5f * (x[r * cols] + x[r * cols + 1])", "1e-5f * x[r * cols] + 1e-5f * x[r * cols + 1]"
    )
    verdict = session.verify_kernel(TINY, candidate, "first_rows")
    assert verdict.verdict == "correct_unmeasured", verdict
