"""Kernels over rows of different lengths (``fill(starts=prefix_sum)``): every size runs, long rows count."""

from __future__ import annotations

import shutil

import pytest
from dice_engine.verify.session import VerifySession

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")

SPARSE = """
// @dice grid=(rows+127)/128 block=128
// @dice in(starts[rows+1], columns[entries], values[entries], x[cols]) inout(y[rows])
// @dice sizes(rows=500, cols=300, entries=4000; rows=33, cols=17, entries=200)
// @dice fill(starts=prefix_sum; columns=int[0,cols))
__global__ void multiply(int rows, const int* starts, const int* columns, const float* values, const float* x,
                         float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float dot = 0;
    for (int j = starts[row]; j < starts[row + 1]; j++) dot += values[j] * x[columns[j]];
    y[row] += dot;
  }
}
"""


def test_offsets_stay_inside_at_every_size(session: VerifySession) -> None:
    right = SPARSE.replace("j < starts[row + 1]", "j != starts[row + 1]")
    verdict = session.verify_kernel(SPARSE, right, "multiply")
    assert verdict.verdict == "correct_unmeasured", verdict


@pytest.mark.parametrize("most", [4, 32, 64])
def test_rows_longer_than_a_warp_are_tried(session: VerifySession, most: int) -> None:
    wrong = SPARSE.replace("j < starts[row + 1]", f"j < min(starts[row + 1], starts[row] + {most})")
    verdict = session.verify_kernel(SPARSE, wrong, "multiply")
    assert verdict.verdict == "mismatch", verdict
