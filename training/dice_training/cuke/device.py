"""CUDA text for the parts of a specification: expressions, chains and reductions, shared by all forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dice_training.cuke.row_ops import Combine, Phase
from dice_training.cuke.spec import Operand, Scalar, Step

Place = Callable[[Operand], str]
"""How an operand is read at the current element: ``y[idx]``, ``bias[idx % cols]``."""

NEUTRAL: dict[Combine, str] = {"sum": "0.0f", "max": "-1e38f", "min": "1e38f", "prod": "1.0f"}
JOIN: dict[Combine, str] = {
    "sum": "{p} += {q};",
    "max": "{p} = fmaxf({p}, {q});",
    "min": "{p} = fminf({p}, {q});",
    "prod": "{p} *= {q};",
}


def read(pointer: str, operand: Operand, element: str, column: str) -> str:
    """How an operand is read: at the element, at its column, or the one value there is."""
    index = {"full": element, "vec": column, "one": "0"}[operand.layout]
    return f"{pointer}[{index}]"


def literal(value: float) -> str:
    """A float literal: ``0.5f``, ``1e-5f``."""
    return repr(float(value)).replace("e-0", "e-") + "f"


def scalar_text(scalar: Scalar) -> str:
    return scalar.name or scalar.constant or (scalar.text[1] if scalar.text else literal(scalar.value))


def expression_fields(step: Step, place: Place) -> dict[str, str]:
    """Format fields of a step's CUDA templates, all but the value."""
    fields = {k: scalar_text(s) for k, s in zip("ab", step.scalars, strict=False)}
    return fields | {k: place(o) for k, o in zip("yz", step.operands, strict=False)}


def expression(step: Step, value: str, place: Place) -> str:
    """The tidy expression of one step; ``value`` must be a plain variable."""
    return step.definition.cuda.format(v=value, **expression_fields(step, place))


def chain(steps: Iterable[Step], value: str, place: Place) -> list[str]:
    return [f"{value} = {expression(step, value, place)};" for step in steps]


def join(combine: Combine, acc: str, term: str) -> str:
    return JOIN[combine].format(p=acc, q=term)


def phase_fields(
    phases: Iterable[Phase], n: str, eps: float | None, names: dict[str, str] | None = None
) -> dict[str, str]:
    """Format fields of a row operator's formulas: each statistic under its name in the text."""
    fields = {"n": n, "e": literal(eps) if eps is not None else ""}
    for phase in phases:
        for stat in (phase.stat, phase.derived):
            if stat:
                fields[stat] = (names or {}).get(stat, stat)
    return fields


def indent(lines: Iterable[str], unit: str, levels: int = 1) -> list[str]:
    return [unit * levels + line if line else "" for line in lines]


def loop(head: str, body: list[str], unit: str) -> list[str]:
    return [f"{head} {{", *indent(body, unit), "}"]


def warp_shuffle(combine: Combine, value: str, unit: str, var: str = "o") -> list[str]:
    """All lanes end with the warp's result in ``value``."""
    return [
        f"for (int {var} = 16; {var} > 0; {var} >>= 1)",
        unit + join(combine, value, f"__shfl_xor_sync(0xffffffff, {value}, {var})"),
    ]


def block_helper(combine: Combine, unit: str) -> list[str]:
    """``block_reduce_<combine>(v)``: every thread of a block (whole warps) gets the block's result."""
    return [
        f"__device__ __forceinline__ float block_reduce_{combine}(float v) {{",
        *indent(
            [
                "__shared__ float partial[32];",
                "int lane = threadIdx.x & 31;",
                "int warp = threadIdx.x >> 5;",
                *warp_shuffle(combine, "v", unit),
                "if (lane == 0) partial[warp] = v;",
                "__syncthreads();",
                f"v = lane < (blockDim.x >> 5) ? partial[lane] : {NEUTRAL[combine]};",
                *warp_shuffle(combine, "v", unit),
                "__syncthreads();",
                "return v;",
            ],
            unit,
        ),
        "}",
    ]


def warp_helper(combine: Combine, unit: str) -> list[str]:
    """``warp_reduce_<combine>(v)``: every lane gets the warp's result."""
    return [
        f"__device__ __forceinline__ float warp_reduce_{combine}(float v) {{",
        *indent([*warp_shuffle(combine, "v", unit), "return v;"], unit),
        "}",
    ]
