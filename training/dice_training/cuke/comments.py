"""Remarks in a body, as people leave them."""

from __future__ import annotations

import random

_REMARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("__syncthreads", ("wait for everybody", "sync")),
    ("for (", ("loop over the row", "walk the data", "TODO: faster?", "reduce")),
    ("while (", ("keep going", "loop")),
    ("blockIdx", ("global index", "which element", "our position", "one block each")),
    ("if (", ("bounds check", "only where needed", "guard")),
    (" = ", ("compute", "load", "store", "accumulate", "next op", "tmp value", "see the paper", "fused")),
)


def commented(lines: list[str], rng: random.Random, share: float) -> list[str]:
    """Lines with remarks between and after them, as people leave them."""
    result: list[str] = []
    for line in lines:
        remark = (
            next((rng.choice(r) for key, r in _REMARKS if key in line), "") if rng.random() < share else ""
        )
        if not remark:
            result.append(line)
        elif line.endswith(";") and rng.random() < 0.5:
            result.append(f"{line}  // {remark}")
        else:
            space = line[: len(line) - len(line.lstrip())]
            result += [f"{space}// {remark}" if rng.random() < 0.85 else f"{space}/* {remark} */", line]
    return result
