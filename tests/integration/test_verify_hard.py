"""The judge against harder adversaries, and its patience with honest code that looks or computes oddly."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dice_engine.verify.session import VerifySession

sys.path.insert(0, str(Path(__file__).parents[1]))
from candidates import REFERENCE
from hard_candidates import CAUGHT, HONEST, ILL_CONDITIONED, pair

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU backend needs g++")


@pytest.fixture(scope="module")
def session() -> Iterator[VerifySession]:
    with VerifySession("cpu", timeout=5.0) as opened:
        yield opened


@pytest.mark.parametrize("name", CAUGHT)
def test_caught(session: VerifySession, name: str) -> None:
    text, verdict, rule = CAUGHT[name]
    found = session.verify_module(REFERENCE, text)
    assert (found.verdict, found.rule) == (verdict, rule), found


@pytest.mark.parametrize("name", HONEST)
def test_honest(session: VerifySession, name: str) -> None:
    found = session.verify_module(REFERENCE, HONEST[name])
    assert found.verdict == "correct_unmeasured", found


@pytest.mark.parametrize("name", ILL_CONDITIONED)
def test_rounding_is_no_fault(session: VerifySession, name: str) -> None:
    found = session.verify_module(*pair(name))
    assert found.verdict == "correct_unmeasured", found


SUM = """
__global__ void total(const float* x, float* out, int n) {
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  BODY
}
void run_total(const float* x, float* out, int n) { total<<<4, 64, 256>>>(x, out, n); }
"""
ATOMIC = SUM.replace("BODY", "atomicAdd(out, sum);")
TREE = """
  extern __shared__ float part[];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 32; half > 0; half >>= 1) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, part[0]);"""
WARPS = """
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) """


@pytest.mark.parametrize(
    "body",
    [
        "*out += sum;",
        WARPS + "*out += sum;",
        TREE.replace("atomicAdd(out, part[0])", "*out += part[0]"),
        TREE.replace(
            "part[threadIdx.x] = sum;",
            "if (!threadIdx.x) part[0] = 0;\n  __syncthreads();\n  part[0] += sum;",
        ).replace("int half = 32", "int half = 0"),
    ],
)
def test_lost_updates_show_in_no_order_but_are_races(session: VerifySession, body: str) -> None:
    found = session.verify_kernel(ATOMIC, SUM.replace("BODY", body), "total")
    assert (found.verdict, found.rule) == ("mismatch", "race"), found


HALVES = """
#include <cuda_fp16.h>
// @dice sizes(n=64; n=20) in(x[n]) inout(y[1])
__global__ void total(const __half* x, __half* y, int n) {
  if (threadIdx.x < n) atomicAdd(y, __hmul(x[threadIdx.x], x[0]));
}
void run(const __half* x, __half* y, int n) { total<<<1, 64>>>(x, y, n); }
"""


def test_atomics_of_halves_lose_nothing(session: VerifySession) -> None:
    found = session.verify_kernel(
        HALVES, HALVES.replace("x[threadIdx.x], x[0]", "x[0], x[threadIdx.x]"), "total"
    )
    assert found.rule != "race", found


@pytest.mark.parametrize("body", [TREE, WARPS + "atomicAdd(out, sum);"])
def test_sums_with_atomics_are_none(session: VerifySession, body: str) -> None:
    found = session.verify_kernel(ATOMIC, SUM.replace("BODY", body), "total")
    assert found.verdict == "correct_unmeasured", found


SHIFT = """
// @dice sizes(n=1000; n=77)
__global__ void shift(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
void run(const float* x, float* y, int n) { shift<<<(n + 127) / 128, 128>>>(x, y, n); }
"""
AHEAD = SHIFT.replace(
    "y[i] = x[i];", "{ float next = x[i + 1]; y[i] = i + 1 < n || next != 1e30f ? x[i] : 0.0f; }"
)
FOURS = SHIFT.replace(
    "y[i] = x[i];",
    "{ float four[4]; __builtin_memcpy(four, x + i, 16); y[i] = four[0] + 0.0f * (four[3] > 1e30f); }",
)


@pytest.mark.parametrize("candidate", [AHEAD, FOURS])
def test_reads_that_change_nothing_are_seen(session: VerifySession, candidate: str) -> None:
    found = session.verify_kernel(SHIFT, candidate, "shift")
    assert (found.verdict, found.rule) == ("mismatch", "out_of_bounds"), found
    assert "past the end of x" in found.reason


def test_reads_that_the_original_makes_too_are_its_own_affair(session: VerifySession) -> None:
    assert session.verify_kernel(AHEAD, AHEAD + "//", "shift").verdict == "correct_unmeasured"
    assert (
        session.verify_kernel(SHIFT, SHIFT.replace("x[i];", "1.0f * x[i];"), "shift").verdict
        == "correct_unmeasured"
    )
