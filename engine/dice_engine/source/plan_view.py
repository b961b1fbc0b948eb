"""A plan in words: how a kernel or module is tested, and where each part of that knowledge came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dice_engine.source.plan import Buffer, Fill, Plan
from dice_engine.source.plan_run import checking_sizes, measuring_sizes

_RETURNED = re.compile(r"def get_inputs\(\):\n    return \[(.*)\]")
_ROLES = {
    "in": "read",
    "out": "written",
    "inout": "read and written, restored before each run",
    "tmp": "scratch, not compared",
}


@dataclass(frozen=True)
class Part:
    """One line of "how this was tested"."""

    what: str
    value: str
    origin: str = ""


def explain(plan: Plan) -> list[Part]:
    """The parts of a plan, in the order a reader asks for them; none for a ``no_plan``, whose reason says it all."""
    if not plan.runnable:
        return []
    origin = plan.origin
    parts = []
    if plan.wrapper is not None:
        parts.append(
            Part(
                "called through",
                "main()" if plan.host_source else f"{plan.wrapper}(...)",
                origin.get("host", origin.get("grid", "")),
            )
        )
    if plan.grid is not None and plan.block is not None:
        parts.append(Part("grid", ", ".join(plan.grid), origin.get("grid", "")))
        parts.append(Part("block", ", ".join(plan.block), origin.get("block", "")))
        parts.append(Part("shared bytes", plan.shared, origin.get("smem", "")))
    elif "launch" in origin:
        parts.append(Part("launch", origin["launch"], origin.get("grid", "")))
    for param, maker in zip(plan.params, plan.arguments, strict=False):
        drawn = maker.startswith(("float(", "int(", "bool("))
        told = "drawn anew for each run" if drawn else origin.get("arguments", origin.get("inputs", ""))
        parts.append(Part(param.name, maker, told))
    parts += [Part(b.name, _buffer(b), origin.get("buffers", origin.get("roles", ""))) for b in plan.buffers]
    parts += [Part(name, _fill(fill), origin.get("fill", "")) for name, fill in plan.scalars.items()]
    if plan.templates != ({},):
        parts.append(
            Part(
                "template arguments",
                _bindings(plan.templates),
                origin.get("tmpl", origin.get("templates", "")),
            )
        )
    if any(plan.sizes):
        parts.append(Part("compared at", _bindings(checking_sizes(plan)), origin.get("sizes", "")))
        parts.append(Part("timed at", _bindings([measuring_sizes(plan)]), origin.get("measure", "")))
    if plan.fixture is not None:
        parts.append(Part("arguments made by", plan.fixture, origin.get("fixture", "")))
    if "inputs" in origin and not plan.arguments:
        made = _RETURNED.search(plan.inputs_source or "")
        parts.append(
            Part("inputs", made[1].replace("torch.", "") if made else "get_inputs()", origin["inputs"])
        )
    if plan.tolerance is not None:
        parts.append(
            Part(
                "tolerance",
                f"relative {plan.tolerance.rel:g}, absolute {plan.tolerance.abs:g}",
                origin.get("tol", ""),
            )
        )
    else:
        parts.append(Part("tolerance", "from the type, the length of sums and the scale of the results"))
    return parts


def _buffer(buffer: Buffer) -> str:
    return f"{buffer.extent} elements, {_ROLES[buffer.role]}" + (
        "" if buffer.role == "out" else f", {_fill(buffer.fill)}"
    )


def _fill(fill: Fill) -> str:
    if fill.kind == "int":
        return f"whole numbers from {fill.low} to below {fill.high}"
    if fill.kind == "uniform":
        return f"uniform from {fill.low} to {fill.high}"
    return {"normal": "normally distributed and other fills", "prefix_sum": "a prefix sum"}.get(
        fill.kind, fill.kind
    )


def _bindings(
    sets: list[dict[str, int]] | tuple[Mapping[str, object], ...] | list[Mapping[str, object]],
) -> str:
    return "; ".join(
        ", ".join(f"{name}={value}" for name, value in one.items()) or "as it is" for one in sets
    )
