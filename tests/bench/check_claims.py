"""Do whole verdicts keep their promise? Two identical kernels 30 times, and one that is 1.05 times faster 10 times.

    PYTHONPATH=engine python tests/bench/check_claims.py [--identical 30] [--faster 10]

Needs an NVIDIA GPU. Exit 1 when identical kernels are `verified` more than once in 30, or the faster kernel in less
than 8 of 10. The faster kernel leaves out the last 105th part of a chain of multiplications by one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from dice_engine.verify.session import VerifySession

# The chain's factors come from the host: no compiler can know that the last steps change nothing.
CHAIN = """
// @dice sizes(n=1000; n=77; n=4194304)
__global__ void chain(const float* x, float* y, float factor, float one, int steps, int more, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (int k = 0; k < steps; ++k) v = v * factor + 0.25f;
  for (int k = 0; k < more; ++k) v = v * one;
  y[i] = v;  // TURN
}
void run(const float* x, float* y, int n) { chain<<<(n + 255) / 256, 256>>>(x, y, 0.5f, 1.0f, 1000, 50, n); }
"""
FASTER = CHAIN.replace("k < more", "k < more - 50")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--identical", type=int, default=30)
    parser.add_argument("--faster", type=int, default=10)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("SKIP: torch sees no CUDA GPU")
        return 0
    failed = False
    with VerifySession("cuda") as session:
        for name, text, count, words in (
            ("identical", CHAIN, options.identical, "at most 1 of 30"),
            ("1.05 times faster", FASTER, options.faster, "at least 8 of 10"),
        ):
            begun = time.perf_counter()
            found = [
                session.verify_kernel(CHAIN, text.replace("TURN", f"turn {i}"), "chain") for i in range(count)
            ]
            seconds = (time.perf_counter() - begun) / max(1, count)
            odd = [v for v in found if v.speedup is None]
            if odd:
                print(f"FAIL {name}: not timed: {odd[0].verdict} {odd[0].rule} {odd[0].reason}")
                return 1
            verified = sum(v.verdict == "verified" for v in found)
            ratios = [v.speedup for v in found if v.speedup is not None]
            good = verified * 30 <= count if name == "identical" else verified * 10 >= 8 * count
            failed |= not good
            print(
                f"{'PASS' if good else 'FAIL'} {name}: {verified} of {count} verified ({words}); ratios "
                f"{min(ratios):.4f} to {max(ratios):.4f}, median {statistics.median(ratios):.4f}; "
                f"{found[0].reference_ms:.4f} ms; {seconds:.2f} s a verdict",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
