"""Random faults while verdicts are made: does a working system remain?

    PYTHONPATH=engine python tests/bench/inject_faults.py [--count 200] [--seed 1]

Kills, stops, full disks, lost folders, endless and wild kernels; after each, the next verdict must be right and
nothing may be left. As root the work is done on a tmpfs of 8 MB. CPU backend, Linux. Exit 1 when a trial fails.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from faults import Trials, killed_judge


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, begun, failed, done = random.Random(options.seed), time.monotonic(), 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="dice-faults-") as folder:
        small = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True
        )
        try:
            with Trials(Path(folder), options.seed) as trials:
                for number in range(options.count):
                    try:
                        judge = rng.random() < 0.05
                        said = killed_judge(Path(folder), rng) if judge else trials.one()
                    except AssertionError as error:
                        failed += 1
                        said = f"FAIL {error}"
                    done[said.partition(":")[0] if not said.startswith("FAIL") else "FAIL"] += 1
                    print(f"{number + 1:4d} {time.monotonic() - begun:7.1f} s  {said}", flush=True)
        finally:
            if small.returncode == 0:
                subprocess.run(["umount", "-l", folder], check=False)
    print(
        f"{'FAIL' if failed else 'PASS'}: {failed} of {options.count} failed; "
        + ", ".join(f"{n} {k}" for k, n in done.most_common())
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
