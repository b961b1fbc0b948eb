"""Verdicts with times, on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from dice_engine.verify.session import VerifySession
from dice_engine.verify.verdict import CORRECT

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import CAUGHT, HONEST, REFERENCE, module

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

# A thread walks a row: neighbours in a warp read far apart.
SLOW = """
__global__ void row_sums(const float* x, float* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) {
    float sum = 0.0f;
    for (int c = 0; c < cols; ++c) sum += x[(size_t)r * cols + c];
    y[r] = sum;
  }
}
void run(const float* x, float* y, int rows, int cols) { row_sums<<<rows, 128>>>(x, y, rows, cols); }
"""
FAST = SLOW.replace(
    SLOW[SLOW.index("  int r =") : SLOW.index("}\nvoid run")],
    """
  __shared__ float part[128];
  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 128) sum += x[(size_t)blockIdx.x * cols + c];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 64; half > 0; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
""",
)


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cuda", timeout=20.0) as opened:
        yield opened


def test_a_faster_kernel_is_verified(session: VerifySession) -> None:
    found = session.verify_kernel(SLOW, FAST, "row_sums")
    assert found.verdict == "verified", found
    assert found.speedup is not None
    assert found.speedup_low is not None
    assert found.speedup > 1.5
    assert found.speedup_low > 1.0
    assert found.build.backend == "nvrtc"


def test_the_same_kernel_is_no_gain(session: VerifySession) -> None:
    found = session.verify_kernel(SLOW, SLOW.replace("float sum = 0.0f;", "float sum = 0.f;"), "row_sums")
    assert found.verdict == "no_gain", found
    assert found.speedup == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", HONEST)
def test_honest_modules_are_timed(session: VerifySession, name: str) -> None:
    found = session.verify_module(REFERENCE, HONEST[name])
    assert found.verdict in CORRECT, found
    assert found.candidate_ms is not None


# Order of threads is the CPU backend's to choose; reading far away may be legal memory of somebody else on a GPU.
@pytest.mark.parametrize(
    "name", [name for name in CAUGHT if name not in ("neighbour_without_barrier", "reads_far_away")]
)
def test_caught_as_on_the_cpu(session: VerifySession, name: str) -> None:
    text, verdict, rule = CAUGHT[name]
    found = session.verify_module(REFERENCE, text)
    assert found.verdict == verdict, found
    assert rule is None or found.rule == rule, found


@pytest.mark.parametrize("joined", [False, True])
def test_work_on_another_stream_counts(session: VerifySession, joined: bool) -> None:
    body = "with torch.cuda.stream(self.side):\n    y = ext.run(x, self.factor)"
    join = "\ntorch.cuda.current_stream().wait_stream(self.side)" if joined else ""
    found = session.verify_module(
        REFERENCE.replace("19, 100", "4096, 1000"),
        module(f"{body}{join}\nreturn y", init="self.side = torch.cuda.Stream()"),
    )
    if joined:
        assert found.verdict == "no_gain", found
    else:
        assert (found.verdict, found.rule) == ("deceptive", "stream_escape"), found


@pytest.mark.parametrize(
    ("piece", "verdict"),
    [
        ("while (clock64() != 0) {}", "timeout"),
        ("*(volatile float*)((char*)y + 1) = 1.0f;", "crash"),
        ("assert(r < 0);", "crash"),
        ("*(volatile float*)16 = 1.0f;", "crash"),
        ('asm("trap;");', "crash"),
    ],
)
def test_the_next_verdict_is_right(session: VerifySession, piece: str, verdict: str) -> None:
    broken = SLOW.replace("    y[r] = sum;", f"    y[r] = sum; {piece}")
    session.timeout = 5.0
    assert session.verify_kernel(SLOW, broken, "row_sums", measure=False).verdict == verdict
    session.timeout = 20.0
    assert session.verify_kernel(SLOW, FAST, "row_sums", measure=False).verdict == "correct_unmeasured"


def test_warm_runners_give_the_same_verdicts() -> None:
    with VerifySession("cuda", isolation="warm", trusted_reference=True) as warm:
        for _ in range(3):
            assert warm.verify_kernel(SLOW, FAST, "row_sums", measure=False).verdict == "correct_unmeasured"
            wrong = warm.verify_kernel(SLOW, FAST.replace("half > 0", "half > 1"), "row_sums", measure=False)
            assert wrong.verdict == "mismatch"
            far = FAST.replace("y[blockIdx.x] = part[0];", "*(volatile float*)16 = 1.0f;")
            assert warm.verify_kernel(SLOW, far, "row_sums", measure=False).verdict == "crash"
